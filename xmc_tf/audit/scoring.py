"""Scores of documents by rankers that were trained on the others."""

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.audit.data import FoldScores, ScoreFold
from xmc_tf.fusion import POOL
from xmc_tf.pipeline.held_out import TrainWithout

_UNBOUNDED = "sigmoid"  # a hinge is the same for all labels that are sure; the sigmoid still tells them apart


def fold_scorer(train: TrainWithout, threads: int = -1) -> ScoreFold:
    """Return a function that trains rankers on some documents and scores others.

    Args:
        train: trains the rankers.
        threads: number of threads; -1: one per core.
    """

    def score(trained_on: np.ndarray, held_out: np.ndarray, asked: csr_matrix) -> FoldScores:
        rankers, X, post = train(trained_on, held_out)
        best = rankers.predict(X, only_topk=POOL, post_processor=post, threads=threads)
        union = csr_matrix(asked + _ones(best))
        of_pairs = (rankers.predict_selected(X, union, post_processor=one) for one in (post, _UNBOUNDED))
        return FoldScores(best, *of_pairs)

    return score


def _ones(matrix: csr_matrix) -> csr_matrix:
    return csr_matrix((np.ones(matrix.nnz, np.float32), matrix.indices, matrix.indptr), shape=matrix.shape)
