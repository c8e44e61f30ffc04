"""The inputs of an audit."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.data import Features, Texts
from xmc_tf.fusion import POOL
from xmc_tf.label_names import LabelNames
from xmc_tf.params.tfidf import AS_WRITTEN
from xmc_tf.pipeline.held_out import TrainWithout

_UNBOUNDED = "sigmoid"  # a hinge is the same for all labels that are sure; the sigmoid still tells them apart


class FoldScores(NamedTuple):
    """Scores of documents by rankers that have not seen them.

    Attributes:
        best: documents × labels: the best labels, descending within a row.
        of_pairs: the scores of these labels and of all that were asked for: documents × labels, ascending labels.
        margins: the same by a sigmoid, which also tells sure labels apart.
    """

    best: csr_matrix
    of_pairs: csr_matrix
    margins: csr_matrix


ScoreFold = Callable[[np.ndarray, np.ndarray, csr_matrix], FoldScores]
"""Trains rankers on some documents (rows, ascending), and scores the labels of a matrix (others × labels) and the best
ones for others."""


@dataclass(frozen=True, eq=False)
class AuditData:
    """Documents with the labels to look at, and what a model knows about them.

    Args:
        X: features of the documents.
        Y: their labels, with ones.
        score: scores documents by rankers that were trained on others.
        texts: the texts, or None.
        names: names of the labels, or None.
        label_names: the names of the labels as the model finds them in texts; None: learned from ``names``.
        language: language of the texts and names; see :class:`TfidfParams`.
        documents: what each document is called; None: its number.
        seed: random seed.
        threads: number of threads; -1: one per core. The result does not depend on it.
    """

    X: Features
    Y: csr_matrix
    score: ScoreFold
    texts: Texts | None = None
    names: Sequence[str] | None = None
    label_names: LabelNames | None = None
    language: str = AS_WRITTEN
    documents: Sequence[str] | None = field(default=None, repr=False)
    seed: int = 0
    threads: int = -1

    @property
    def sparse(self) -> csr_matrix:
        """The features by which documents are compared: the sparse ones, if there are any."""
        return csr_matrix(self.X.dense if self.X.sparse is None else self.X.sparse)

    def label_name(self, label: int) -> str:
        """Return the name of a label, or its number.

        Args:
            label: number of the label.
        """
        return str(label) if self.names is None else self.names[label]

    def document_name(self, row: int) -> str:
        """Return what a document is called.

        Args:
            row: its row.
        """
        return str(row) if self.documents is None else self.documents[row]


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
