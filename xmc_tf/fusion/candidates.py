"""Candidates: the labels that any source of evidence suggests for a document."""

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.label_names import Mentions

NOT_MENTIONED = -1


class LabelCandidates(NamedTuple):
    """The labels suggested for documents, sorted by document and label."""

    rows: np.ndarray  # int64: the document
    labels: np.ndarray  # int64
    score: np.ndarray  # float64: the rankers' score; 0 if they do not suggest the label
    mention: np.ndarray  # int64: the label's index in mentions, or NOT_MENTIONED
    mentions: Mentions  # what the texts mention, followed by an entry of zeros
    similarity: np.ndarray  # float64: of text and name, if an encoder compares them; else 0
    closeness: np.ndarray  # float64: cosine of document and center; 0 for all candidates if there are no centers
    scarcity: np.ndarray  # float64: how little of the document's text is known, from 0 to 1

    def only(self, wanted: np.ndarray) -> "LabelCandidates":
        return LabelCandidates(
            self.rows[wanted], self.labels[wanted], self.score[wanted], self.mention[wanted], self.mentions,
            self.similarity[wanted], self.closeness[wanted], self.scarcity[wanted],
        )  # fmt: skip

    @property
    def precision(self) -> np.ndarray:
        """The estimated precision of the name match that mentions each candidate, as float64; 0 if not mentioned."""
        return np.asarray(self.mentions.precision[self.mention], np.float64)


def join_candidates(
    scores: csr_matrix,
    mentions: Mentions | None,
    ranked: np.ndarray | None = None,  # bool [labels]: the labels whose scores count
    similar: csr_matrix | None = None,  # an entry for each label whose name is similar to the text
    needs_score: np.ndarray | None = None,  # bool [mentions]: count the label only if the rankers suggest it too
) -> LabelCandidates:
    """Combine the labels suggested by rankers (scores from 0 to 1), by mentions of names, and by similarities."""
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
    return LabelCandidates(rows, labels, score, mention, _with_none(mentions), nothing, nothing, nothing)


def _with_none(mentions: Mentions | None) -> Mentions:
    """Append an entry of zeros to the mentions, so that the index ``NOT_MENTIONED`` finds it."""
    if mentions is None:
        return Mentions(*(np.zeros(1) for _ in Mentions._fields))
    return Mentions(*(np.append(column, column.dtype.type(0)) for column in mentions))


def _keys(source: csr_matrix, nr_labels: int) -> np.ndarray:
    rows = np.repeat(np.arange(source.shape[0], dtype=np.int64), np.diff(source.indptr))
    return rows * nr_labels + source.indices
