"""Interactions of users with items, prepared by streaming, and batches of windows of them."""
