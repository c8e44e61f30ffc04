"""A local page to try a model: enter a text, get labels, their paths through the tree, and the deciding words."""
