"""Next-item prediction: sequence models whose item table is sharded over the ranks."""
