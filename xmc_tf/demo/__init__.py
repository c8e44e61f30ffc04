"""A data set built from every installation itself, and a demonstration on it."""
