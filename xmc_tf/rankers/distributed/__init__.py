"""Rankers trained by many ranks: threads claim sub-problems as they become free; the results are joined from disk.

Data flow, where every arrow is a file in the work folder, which all ranks share:

* rank 0: labels, tree, relevance → for each level its problem (``work_folder.py``), cut into sub-problems
* every rank's threads: claim the largest unclaimed sub-problem, solve it into a block
* all ranks: blocks → each level's W, streamed, each rank a part (``solving.py``)
* levels that learn from mistakes ("man"): every rank predicts its range of the documents with the levels so far
  (``training.py``) → the next levels' problems
* rank 0: levels → the model's folder

The content of a file depends on the inputs alone, so an interrupted run can be resumed from its files, and the model
does not depend on the number of ranks.
"""
