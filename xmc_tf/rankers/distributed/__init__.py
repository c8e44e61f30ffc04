"""Distributed training of rankers: free threads claim sub-problems, and all ranks join the results on disk.

The ranks share a work folder. Rank 0 writes each level's problem and cuts it into sub-problems. The threads of all
ranks solve the sub-problems and write the results to block files, which all ranks then join into the level's weight
matrix W. For a level that learns from mistakes ("man"), every rank first predicts a range of the documents with the
levels trained so far. The content of each file depends only on the inputs, so an interrupted run can resume from its
files, and the model does not depend on the number of ranks.
"""
