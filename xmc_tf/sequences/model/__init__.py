"""The sequence model: item table, transformer, softmax over all items, ranking."""
