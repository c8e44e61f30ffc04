"""Candidates: for each document, the labels that any source of evidence suggests."""

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix


class LabelCandidates(NamedTuple):
    """Labels suggested for documents, sorted by document and label.

    Attributes:
        rows: int64: the document.
        labels: int64: the label.
        score: float64: the rankers' score; 0 if they do not suggest the label.
        worth: float64: what the label's names in the text are worth; 0: none.
        similarity: float64: of text and name, if the label has no documents and there is an encoder; else 0.
        closeness: float64: cosine of the document and the center of the label, if it has documents and there is an
            encoder; else the same for all candidates.
    """

    rows: np.ndarray
    labels: np.ndarray
    score: np.ndarray
    worth: np.ndarray
    similarity: np.ndarray
    closeness: np.ndarray

    def of_labels(self, wanted: np.ndarray) -> "LabelCandidates":
        """Return the candidates of some labels.

        Args:
            wanted: bool [labels].
        """
        return self.only(wanted[self.labels])

    def only(self, wanted: np.ndarray) -> "LabelCandidates":
        """Return some candidates.

        Args:
            wanted: bool [candidates].
        """
        return LabelCandidates(*(column[wanted] for column in self))


def join_candidates(
    scores: csr_matrix,
    evidence: csr_matrix | None,
    ranked: np.ndarray | None = None,
    similar: csr_matrix | None = None,
) -> LabelCandidates:
    """Return the union of the labels that rankers, names and similarities suggest.

    Args:
        scores: documents × labels, the best labels of the rankers with scores from 0 to 1.
        evidence: documents × labels, what names are worth; None: there are no names.
        ranked: bool [labels]: the labels whose scores count, which have training documents; None: all.
        similar: documents × labels, an entry for each label whose name is similar to the text; None: not known.
    """
    nr_labels = scores.shape[1] if ranked is None else len(ranked)
    by_rankers, named = _keys(scores, nr_labels), np.zeros(0, np.int64)
    values, worths = scores.data, np.zeros(0)
    if ranked is not None:
        counts = ranked[scores.indices]
        by_rankers, values = by_rankers[counts], values[counts]
    if evidence is not None:
        named, worths = _keys(evidence, nr_labels), evidence.data
    alike = np.zeros(0, np.int64) if similar is None else _keys(similar, nr_labels)
    joined, place = np.unique(np.concatenate([by_rankers, named, alike]), return_inverse=True)
    score, worth = np.zeros(len(joined)), np.zeros(len(joined))
    score[place[: len(by_rankers)]] = values
    worth[place[len(by_rankers) : len(by_rankers) + len(named)]] = worths
    rows, labels = np.divmod(joined, nr_labels)
    nothing = np.zeros(len(joined))
    return LabelCandidates(rows, labels, score, worth, nothing, nothing)


def _keys(source: csr_matrix, nr_labels: int) -> np.ndarray:
    rows = np.repeat(np.arange(source.shape[0], dtype=np.int64), np.diff(source.indptr))
    return rows * nr_labels + source.indices
