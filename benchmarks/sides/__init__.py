"""The two sides of a comparison, each run by its own Python in a process of its own."""
