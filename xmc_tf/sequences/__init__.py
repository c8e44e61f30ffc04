"""Sequence models that predict the next item. Their item table is sharded over the ranks."""
