"""A local web page to try a model: enter a text, and see its labels, their tree paths, and the deciding words."""
