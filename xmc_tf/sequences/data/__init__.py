"""Prepare interactions of users with items, and read them in batches for training and evaluation."""
