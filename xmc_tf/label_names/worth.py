"""The worth of a match of a name: the share of documents with the match that have the label.

The share is counted for each name and grade of match, on the training documents. Few matches say little, so it is
shrunk to the share of similar names: of the same number of words and a similar rarity. A training document's own label
does not count in its own evidence.
"""

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.label_names.index import NameIndex
from xmc_tf.label_names.kernels import NR_GRADES
from xmc_tf.label_names.matcher import Matches

LEAST = 0.02  # matches that are worth less are ignored
_PRIOR_MATCHES = 8.0  # the share of similar names counts as much as this number of matches
_PRIOR_SIMILAR = 5.0  # the same, for the share of all names in that of similar ones
_RARITIES, _RARITY_STEP = 13, 48
_MOST_WORDS = 3


class MatchCounts(NamedTuple):
    """Counts of the matches in training documents.

    Attributes:
        matches: int64 [names, grades]: number of matches.
        right: int64 [names, grades]: number of matches in documents with the label.
        prior: float64 [names, grades]: the share of similar names.
    """

    matches: np.ndarray
    right: np.ndarray
    prior: np.ndarray

    def worth(self) -> np.ndarray:
        """Return the worth of a match in a new document: float32 [names, grades]; 0 where it is ignored."""
        return _shown((self.right + _PRIOR_MATCHES * self.prior) / (self.matches + _PRIOR_MATCHES))

    def worth_elsewhere(self, found: Matches, right: np.ndarray) -> np.ndarray:
        """Return the worth of each match in training documents, counted on the other documents."""
        at = (found.names, found.grades)
        counted = self.right[at] - right + _PRIOR_MATCHES * self.prior[at]
        return _shown(counted / (self.matches[at] - 1 + _PRIOR_MATCHES))


def count_matches(index: NameIndex, found: Matches, right: np.ndarray) -> MatchCounts:
    """Count the matches in training documents.

    Args:
        index: the names.
        found: their matches in the training documents.
        right: for each match, whether the document has the label.
    """
    nr_names = len(index.labels)
    cells = found.names.astype(np.int64) * NR_GRADES + found.grades
    matches = np.bincount(cells, minlength=nr_names * NR_GRADES).astype(np.int64)
    hits = np.bincount(cells[right], minlength=nr_names * NR_GRADES).astype(np.int64)
    similar = _kinds(index)[:, None] * NR_GRADES + np.arange(NR_GRADES)
    of_kind = np.bincount(similar.ravel(), matches), np.bincount(similar.ravel(), hits)
    share = hits.sum() / max(matches.sum(), 1)
    prior = (of_kind[1] + _PRIOR_SIMILAR * share) / (of_kind[0] + _PRIOR_SIMILAR)
    shape = (nr_names, NR_GRADES)
    return MatchCounts(matches.reshape(shape), hits.reshape(shape), prior[similar])


def is_right(index: NameIndex, found: Matches, Y: csr_matrix) -> np.ndarray:
    """Return for each match whether its document has the label."""
    Y = Y.sorted_indices()
    key = np.repeat(np.arange(Y.shape[0]), np.diff(found.splits)) * np.int64(Y.shape[1]) + index.labels[found.names]
    positives = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr)) * np.int64(Y.shape[1]) + Y.indices
    place = np.minimum(np.searchsorted(positives, key), max(len(positives) - 1, 0))
    return positives[place] == key if len(positives) else np.zeros(len(key), bool)


def evidence_matrix(index: NameIndex, found: Matches, worth: np.ndarray, nr_labels: int) -> csr_matrix:
    """Return the worth of each label's best match: documents × labels.

    Args:
        index: the names.
        found: the matches.
        worth: the worth of each match.
        nr_labels: number of labels.
    """
    nr_rows = len(found.splits) - 1
    some = worth > 0
    rows = np.repeat(np.arange(nr_rows), np.diff(found.splits))[some]
    labels, worth = index.labels[found.names[some]], worth[some]
    order = np.lexsort((worth, labels, rows))
    rows, labels, worth = rows[order], labels[order], worth[order]
    best = np.ones(len(rows), bool)
    best[:-1] = (rows[1:] != rows[:-1]) | (labels[1:] != labels[:-1])
    indptr = np.searchsorted(rows[best], np.arange(nr_rows + 1))
    return csr_matrix((worth[best], labels[best], indptr), shape=(nr_rows, nr_labels))


def _shown(worth: np.ndarray) -> np.ndarray:
    return np.where(worth >= LEAST, worth, 0.0).astype(np.float32)


def _kinds(index: NameIndex) -> np.ndarray:
    """Return a number for each name, the same for similar names."""
    before = np.concatenate([[0], np.cumsum(index.weights, dtype=np.int64)])
    weight = before[index.splits[1:]] - before[index.splits[:-1]]
    rarity = np.minimum(weight // _RARITY_STEP, _RARITIES - 1)
    words = np.clip(np.diff(index.splits), 1, _MOST_WORDS) - 1
    return rarity * _MOST_WORDS + words
