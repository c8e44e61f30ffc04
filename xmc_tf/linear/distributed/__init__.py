"""Rankers trained by many ranks: sub-problems handed out as ranks come free, results joined from disk.

Data flow, where every arrow is a file in the work folder, which all ranks share:

* rank 0: labels, tree, relevance → for each level its problem (``stored.py``), cut into sub-problems (``plan.py``)
* every rank's threads: claim the largest sub-problem left (``claims.py``), solve it into a block (``blocks.py``)
* one rank per level: blocks → that level's W, streamed (``joining.py``)
* levels that learn from mistakes ("man"): every rank predicts its range of the documents with the levels so far, mapped
  (``predicting.py``) → the next levels' problems
* rank 0: levels → the model's folder (``placing.py``)

What a file holds depends on the inputs alone, so that whatever is there after a failure is kept, and the number of
ranks never shows in the model.
"""
