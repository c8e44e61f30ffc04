"""A data set that is built from the installed packages, and a demonstration with it."""
