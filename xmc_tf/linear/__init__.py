"""Commands for linear rankers alone (train, predict, evaluate), with the names and flags of PECOS's commands."""
