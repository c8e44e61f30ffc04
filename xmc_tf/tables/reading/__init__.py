"""Read tables of all kinds, row by row."""
