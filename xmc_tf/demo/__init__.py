"""A data set built from the documentation of the installed packages, and a demonstration of training with it."""
