"""The hosts of a run: what they are, and the files and variables that name them."""
