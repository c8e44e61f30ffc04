"""Fine-tuning level by level: the labels of each level, candidates, batches, the sharded label head and its losses."""
