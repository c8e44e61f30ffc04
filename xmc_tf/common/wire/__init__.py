"""The format in which ranks send values, which cannot run code."""
