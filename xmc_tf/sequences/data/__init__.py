"""Interactions of users with items, prepared as streams, and batches of windows of them."""
