"""The sequence model: an item table, a transformer, a softmax over all items, and the ranking of items."""
