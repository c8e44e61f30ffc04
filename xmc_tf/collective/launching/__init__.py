"""Starting the ranks of a training: cores for each, what they say, and an end for all when one fails."""
