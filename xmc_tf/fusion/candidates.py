"""Candidates: for each document, the labels that any source of evidence suggests."""

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix


class Candidates(NamedTuple):
    """Labels suggested for documents, sorted by document and label.

    Attributes:
        rows: int64: the document.
        labels: int64: the label.
        score: float64: the rankers' score; 0 if they do not suggest the label.
        worth: float64: what the label's names in the text are worth; 0: none.
    """

    rows: np.ndarray
    labels: np.ndarray
    score: np.ndarray
    worth: np.ndarray


def join_candidates(scores: csr_matrix, evidence: csr_matrix | None) -> Candidates:
    """Return the union of the labels that rankers and names suggest.

    Args:
        scores: documents × labels, the best labels of the rankers with scores from 0 to 1.
        evidence: documents × labels, what names are worth; None: there are no names.
    """
    nr_labels = scores.shape[1]
    ranked, named = _keys(scores, nr_labels), np.zeros(0, np.int64)
    worths = np.zeros(0)
    if evidence is not None:
        named, worths = _keys(evidence, nr_labels), evidence.data
    joined, place = np.unique(np.concatenate([ranked, named]), return_inverse=True)
    score, worth = np.zeros(len(joined)), np.zeros(len(joined))
    score[place[: len(ranked)]] = scores.data
    worth[place[len(ranked) :]] = worths
    rows, labels = np.divmod(joined, nr_labels)
    return Candidates(rows, labels, score, worth)


def _keys(source: csr_matrix, nr_labels: int) -> np.ndarray:
    rows = np.repeat(np.arange(source.shape[0], dtype=np.int64), np.diff(source.indptr))
    return rows * nr_labels + source.indices
