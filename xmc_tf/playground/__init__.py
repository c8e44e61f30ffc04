"""A local page to try an exported model: text in, labels out, with the way through the tree to each."""
