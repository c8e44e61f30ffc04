"""A data set that every installation can build from itself, and a demonstration on it."""
