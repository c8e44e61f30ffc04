"""The labels to which fine-tuning compares each document."""
