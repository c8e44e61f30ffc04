"""Fine-tuning of encoder and label heads, level by level: labels, candidates, batches, sharded heads and losses."""
