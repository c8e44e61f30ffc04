"""Explanations of predictions: the words, the path through the tree and the other evidence that led to a label."""
