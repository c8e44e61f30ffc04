"""Exported models, and what belongs to serving them."""
