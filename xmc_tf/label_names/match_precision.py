"""The precision of a match of a name: the share of documents with the match that have the label.

The share is counted on the training documents for each name and grade of match. Few matches are little evidence, so it
is shrunk towards the share of similar names: those with the same number of words and a similar rarity. This is shrunk
towards their share in documents of other vocabularies. If the label has no documents, the precision is the share of
similar names. The labels of held-out documents are no evidence for themselves.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.label_names.cold_start import cold_start
from xmc_tf.label_names.find_mentions import Matches
from xmc_tf.label_names.index import NameIndex
from xmc_tf.label_names.kernels import NR_GRADES

LEAST = 0.02  # matches with a lower precision are ignored
_PRIOR_MATCHES = 8.0  # the share of similar names counts as this number of matches
_PRIOR_SIMILAR = 50.0  # the share in documents of other vocabularies counts as this number of matches of similar names
_RARITIES, _RARITY_STEP = 13, 48
_MOST_WORDS = 3
NR_KINDS = _RARITIES * _MOST_WORDS


class MatchCounts(NamedTuple):
    """Counts of the matches in training documents. Labels without documents are left out."""

    matches: np.ndarray  # int64 [names, grades]
    right: np.ndarray  # int64 [names, grades]: matches in documents with the label
    known: np.ndarray  # bool [names]: whether the label has documents
    kinds: np.ndarray  # int64 [names]: the same for similar names
    of_kind: np.ndarray  # float64 [kinds, grades]: matches of similar names of labels with documents
    right_of_kind: np.ndarray  # float64 [kinds, grades]: the same, in documents with the label

    def priors(self) -> np.ndarray:
        """Return the share of correct matches for each kind of name: float64 [kinds, grades]."""
        right = self.right_of_kind + _PRIOR_SIMILAR * cold_start().priors
        return right / (self.of_kind + _PRIOR_SIMILAR)

    def precision(self) -> np.ndarray:
        """Return the estimated precision of matches in new documents: float32 [names, grades]; 0: ignore the match."""
        prior = self.priors()[self.kinds]
        counted = (self.right + _PRIOR_MATCHES * prior) / (self.matches + _PRIOR_MATCHES)
        return shown(np.where(self.known[:, None], counted, prior))


def count_matches(index: NameIndex, found: Matches, right: np.ndarray, documents: np.ndarray) -> MatchCounts:
    """Count matches, and those in documents with the label, for each name and grade and for similar names."""
    nr_names = len(index.labels)
    known, kinds = documents[index.labels] > 0, kinds_of_names(index)
    cells = found.names.astype(np.int64) * NR_GRADES + found.grades
    size, shape = nr_names * NR_GRADES, (nr_names, NR_GRADES)
    matches = np.bincount(cells, minlength=size).astype(np.int64).reshape(shape) * known[:, None]
    hits = np.bincount(cells[right], minlength=size).astype(np.int64).reshape(shape)
    # A label that only this document has is known because it is right here, and would seem to be always right.
    elsewhere = documents[index.labels[found.names]] > right
    similar = kinds[found.names] * NR_GRADES + found.grades
    of_kind, right_of_kind = (
        np.bincount(similar[some], minlength=NR_KINDS * NR_GRADES).astype(np.float64).reshape(NR_KINDS, NR_GRADES)
        for some in (elsewhere, elsewhere & right)
    )
    return MatchCounts(matches, hits, known, kinds, of_kind, right_of_kind)


def precision_elsewhere(
    index: NameIndex, found: Matches, Y: csr_matrix, folds: Sequence[np.ndarray], hidden: Sequence[np.ndarray] = ()
) -> np.ndarray:
    """Return the precision of each match in held-out documents, counted on all documents outside its fold.

    Leaving out only the document itself is not enough: with all else equal, a match in a document with the label would
    then have a lower precision than one in a document without it.
    """
    document, right = np.repeat(np.arange(Y.shape[0]), np.diff(found.splits)), is_right(index, found, Y)
    out = np.zeros(len(document), np.float32)
    for number, fold in enumerate(folds):
        held_out = np.zeros(Y.shape[0], bool)
        held_out[fold] = True
        own = held_out[document]
        documents = np.bincount(Y[np.flatnonzero(~held_out)].indices, minlength=Y.shape[1])
        if hidden:
            documents[hidden[number]] = 0
        counted = right & (documents[index.labels[found.names]] > 0)
        precision = count_matches(index, found.only(~own), counted[~own], documents).precision()
        out[own] = precision[found.names[own], found.grades[own]]
    return out


def is_right(index: NameIndex, found: Matches, Y: csr_matrix) -> np.ndarray:
    """Return, for each match, whether its document has the label."""
    Y = Y.sorted_indices()
    key = np.repeat(np.arange(Y.shape[0]), np.diff(found.splits)) * np.int64(Y.shape[1]) + index.labels[found.names]
    positives = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr)) * np.int64(Y.shape[1]) + Y.indices
    place = np.minimum(np.searchsorted(positives, key), max(len(positives) - 1, 0))
    return positives[place] == key if len(positives) else np.zeros(len(key), bool)


def shown(precision: np.ndarray) -> np.ndarray:
    """Return the precisions as float32; precisions that are too small to count become 0."""
    return np.where(precision >= LEAST, precision, 0.0).astype(np.float32)


def kinds_of_names(index: NameIndex) -> np.ndarray:
    """Return the kind of each name. Names of a kind have a similar rarity and number of words."""
    before = np.concatenate([[0], np.cumsum(index.weights, dtype=np.int64)])
    weight = before[index.splits[1:]] - before[index.splits[:-1]]
    rarity = np.minimum(weight // _RARITY_STEP, _RARITIES - 1)
    words = np.clip(np.diff(index.splits), 1, _MOST_WORDS) - 1
    return rarity * _MOST_WORDS + words
