"""Sequence models that predict the next item of a history. Their item table is sharded over the ranks."""
