"""Training over ranks: the strategy, its sharded tables, optimizers and checkpoints."""
