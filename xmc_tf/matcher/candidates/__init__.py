"""The labels that fine-tuning compares each document with."""
