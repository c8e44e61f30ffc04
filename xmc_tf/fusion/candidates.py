"""Candidates: for each document, the labels that any source of evidence suggests."""

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.label_names import Mentions

NOT_MENTIONED = -1


class LabelCandidates(NamedTuple):
    """Labels suggested for documents, sorted by document and label.

    Attributes:
        rows: int64: the document.
        labels: int64: the label.
        score: float64: the rankers' score; 0 if they do not suggest the label.
        mention: int64: the place of the label's mention in ``mentions``; ``NOT_MENTIONED``: none.
        mentions: the labels that the texts mention, with one more entry of zeros, for those that they do not.
        similarity: float64: of text and name, if the label has no documents and there is an encoder; else 0.
        closeness: float64: cosine of the document and the center of the label, if it has documents and there is an
            encoder; else the same for all candidates.
    """

    rows: np.ndarray
    labels: np.ndarray
    score: np.ndarray
    mention: np.ndarray
    mentions: Mentions
    similarity: np.ndarray
    closeness: np.ndarray

    def only(self, wanted: np.ndarray) -> "LabelCandidates":
        """Return some candidates.

        Args:
            wanted: bool [candidates].
        """
        return LabelCandidates(
            self.rows[wanted], self.labels[wanted], self.score[wanted], self.mention[wanted], self.mentions,
            self.similarity[wanted], self.closeness[wanted],
        )  # fmt: skip

    @property
    def worth(self) -> np.ndarray:
        """The worth of the mentions: float64; 0 if there are none."""
        return np.asarray(self.mentions.worth[self.mention], np.float64)


def join_candidates(
    scores: csr_matrix,
    mentions: Mentions | None,
    ranked: np.ndarray | None = None,
    similar: csr_matrix | None = None,
    needs_score: np.ndarray | None = None,
) -> LabelCandidates:
    """Return the union of the labels that rankers, names and similarities suggest.

    Args:
        scores: documents × labels, the best labels of the rankers with scores from 0 to 1.
        mentions: the labels that the texts mention; None: there are no names.
        ranked: bool [labels]: the labels whose scores count; None: all.
        similar: documents × labels, an entry for each label whose name is similar to the text; None: not known.
        needs_score: bool [mentions]: whether a label counts only if the rankers suggest it too; None: none of them.
    """
    nr_labels = scores.shape[1] if ranked is None else len(ranked)
    by_rankers, values = _keys(scores, nr_labels), scores.data
    if ranked is not None:
        counts = ranked[scores.indices]
        by_rankers, values = by_rankers[counts], values[counts]
    named = np.zeros(0, np.int64) if mentions is None else mentions.rows * nr_labels + mentions.labels
    alone = named if needs_score is None else named[~needs_score]
    alike = np.zeros(0, np.int64) if similar is None else _keys(similar, nr_labels)
    joined = np.unique(np.concatenate([by_rankers, alone, alike]))
    score, mention = np.zeros(len(joined)), np.full(len(joined), NOT_MENTIONED)
    score[np.searchsorted(joined, by_rankers)] = values
    place = np.searchsorted(joined, named)
    there = np.flatnonzero(np.append(joined, -1)[place] == named)
    mention[place[there]] = there
    rows, labels = np.divmod(joined, nr_labels)
    nothing = np.zeros(len(joined))
    return LabelCandidates(rows, labels, score, mention, _with_none(mentions), nothing, nothing)


def _with_none(mentions: Mentions | None) -> Mentions:
    """Return mentions followed by one of zeros, which a place of ``NOT_MENTIONED`` finds."""
    if mentions is None:
        return Mentions(*(np.zeros(1) for _ in Mentions._fields))
    return Mentions(*(np.append(column, column.dtype.type(0)) for column in mentions))


def _keys(source: csr_matrix, nr_labels: int) -> np.ndarray:
    rows = np.repeat(np.arange(source.shape[0], dtype=np.int64), np.diff(source.indptr))
    return rows * nr_labels + source.indices
