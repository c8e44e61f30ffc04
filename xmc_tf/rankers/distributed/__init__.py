"""Rankers trained by many ranks: threads claim sub-problems as they become free; the results are joined from disk.

The ranks share a work folder. Rank 0 writes each level's problem, cut into sub-problems; every rank's threads solve
sub-problems into blocks; all ranks join the blocks into each level's W. For levels that learn from mistakes ("man"),
every rank first predicts its range of the documents with the levels so far. The content of a file depends on the inputs
alone, so an interrupted run resumes from its files, and the model does not depend on the number of ranks.
"""
