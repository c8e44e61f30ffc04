"""Results that a data set keeps for the next run, in its database: arrays, files, and token ids."""
