"""Embedding tables that are sharded over the ranks: rows, lookups, scores of pairs."""
