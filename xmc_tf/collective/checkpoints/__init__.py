"""Checkpoints of sharded tables, which load on any number of ranks."""
