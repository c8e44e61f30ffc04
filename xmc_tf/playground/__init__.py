"""A local page to try an exported model: enter a text, get labels and their paths through the tree."""
