"""Optimizers for sharded tables, and the gradients they take."""
