"""Products of vectors with all rows of a sharded table, and the layers of Keras that are made of them."""
