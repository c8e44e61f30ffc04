"""The inputs of an audit, and its findings."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.data import Features, Texts
from xmc_tf.label_names import LabelNames
from xmc_tf.params.pools import FUSED_LABELS
from xmc_tf.params.tfidf import AS_WRITTEN
from xmc_tf.pipeline.held_out import TrainWithout

_UNBOUNDED = "sigmoid"  # a hinge is the same for all certain labels; the sigmoid still distinguishes them
MISSING, WRONG, DUPLICATES = "missing", "wrong", "duplicates"
SAME_LABELS, SILENT_NAME = "same labels", "silent name"
KINDS = {
    MISSING: "A label that the document probably should have.",
    WRONG: "A label that the document probably should not have.",
    DUPLICATES: "Two documents with nearly the same text and different labels.",
    SAME_LABELS: "Two labels that the texts do not distinguish.",
    SILENT_NAME: "A label whose name is in none of its texts.",
}
"""The kinds of findings, each with its meaning."""
NOUNS = {
    MISSING: ("missing label", "missing labels"),
    WRONG: ("wrong label", "wrong labels"),
    DUPLICATES: ("pair of duplicates", "pairs of duplicates"),
    SAME_LABELS: ("pair of same labels", "pairs of same labels"),
    SILENT_NAME: ("silent name", "silent names"),
}  # one finding of a kind, and several

FoldScores = tuple[csr_matrix, csr_matrix, csr_matrix]
ScoreFold = Callable[[np.ndarray, np.ndarray, csr_matrix], FoldScores]
"""A function that trains rankers on some documents (rows, ascending) and scores the labels of other documents (rows).

Its last argument is a matrix of the other documents × labels to score. It returns three such matrices: the best labels,
best first; the scores of these and of the labels to score; and sigmoid scores, which differ even for certain labels."""


@dataclass(frozen=True, eq=False)
class AuditData:
    """Documents with the labels to check, a function that scores them, and optional texts and names."""

    X: Features
    Y: csr_matrix  # with ones
    score: ScoreFold  # scores documents with rankers that were trained on other documents
    texts: Texts | None = None
    names: Sequence[str] | None = None
    label_names: LabelNames | None = None  # None: learned from names
    language: str = AS_WRITTEN  # see TfidfParams
    documents: Sequence[str] | None = field(default=None, repr=False)  # the name of each document; None: its row
    seed: int = 0
    threads: int = -1

    @property
    def sparse(self) -> csr_matrix:
        """The features by which documents are compared: the sparse ones, or the dense ones if there are no others."""
        return csr_matrix(self.X.dense if self.X.sparse is None else self.X.sparse)

    def label_name(self, label: int) -> str:
        """Return the name of a label, or its number if it has no name."""
        return str(label) if self.names is None else self.names[label]

    def document_name(self, row: int) -> str:
        """Return the name of a document, or its row if it has no name."""
        return str(row) if self.documents is None else self.documents[row]


def fold_scorer(train: TrainWithout, threads: int = -1) -> ScoreFold:
    """Return a function that trains rankers on some documents and scores the labels of other documents."""

    def score(trained_on: np.ndarray, held_out: np.ndarray, asked: csr_matrix) -> FoldScores:
        rankers, X, post, _ = train(trained_on, held_out)
        best = rankers.predict(X, only_topk=FUSED_LABELS, post_processor=post, threads=threads)
        ones = csr_matrix((np.ones(best.nnz, np.float32), best.indices, best.indptr), shape=best.shape)
        union = csr_matrix(asked + ones)
        scores, margins = (rankers.predict_selected(X, union, post_processor=one) for one in (post, _UNBOUNDED))
        return best, scores, margins

    return score


@dataclass(frozen=True)
class Finding:
    """A possible problem with labels, which a person should check."""

    kind: str  # one of KINDS
    row: int | None  # of the document, from 0; None: it is only about a label
    label: int | None  # None: it is about all labels of a document
    other: int | None  # row of the other document, or number of the other label
    strength: float  # of the evidence, from 0 to 1; not the probability that it is right
    gain: float  # the strength times the number of labels of documents that would change
    why: str  # the reasons, in words
