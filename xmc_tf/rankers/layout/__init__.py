"""The search layout of weights, in memory and on disk."""
