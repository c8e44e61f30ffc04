"""The labels that each document is compared with in fine-tuning."""
