"""Update a trained linear model: append documents, and add, remove, merge or correct labels."""
