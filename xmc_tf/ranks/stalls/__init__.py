"""The watch that ends a run in which a rank no longer makes progress."""
