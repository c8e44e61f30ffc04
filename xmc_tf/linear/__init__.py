"""Commands for linear rankers alone, with the names and flags of PECOS's: train, predict, evaluate."""
