"""Explanations of predictions: the words, the path through the tree, and other evidence for each label."""
