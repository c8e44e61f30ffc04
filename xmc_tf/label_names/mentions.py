"""Mentions of labels: the best match of any of a label's names in each document."""

from typing import NamedTuple, Self

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.label_names.find_mentions import Matches
from xmc_tf.label_names.index import NameIndex
from xmc_tf.label_names.kernels import PARTIAL

PRECISION_STEPS = 1 << 20  # precisions are compared as whole numbers, the same in compiled code and graph


class Mentions(NamedTuple):
    """The labels that texts mention, sorted by text and label."""

    rows: np.ndarray  # int64: the text
    labels: np.ndarray  # int64
    precision: np.ndarray  # float32: the share of right labels among such matches; 0: too small to count
    grade: np.ndarray  # int8; see Matches, as for the next four
    coverage: np.ndarray  # float32
    counts: np.ndarray  # int32
    position: np.ndarray  # float32
    inside: np.ndarray  # int8
    rarity: np.ndarray  # int32: the weight of the name, the sum of its words' rarities
    words: np.ndarray  # int32: number of words of the name

    @classmethod
    def of(cls, index: NameIndex, found: Matches, precision: np.ndarray) -> Self:
        """Return the best match of each label in each text: of the highest grade, then of the highest precision."""
        rows = np.repeat(np.arange(len(found.splits) - 1), np.diff(found.splits))
        labels = index.labels[found.names].astype(np.int64)
        order = np.lexsort((found.names, -np.round(precision * PRECISION_STEPS), -found.grades, labels, rows))
        first = np.ones(len(order), bool)
        first[1:] = (np.diff(rows[order]) != 0) | (np.diff(labels[order]) != 0)
        best = order[first]
        before = np.concatenate([[0], np.cumsum(index.weights, dtype=np.int64)])
        names = found.names[best]
        rarity = (before[index.splits[1:]] - before[index.splits[:-1]])[names]
        return cls(
            rows[best], labels[best], precision[best], found.grades[best], found.coverage[best], found.counts[best],
            found.position[best], found.inside[best], rarity.astype(np.int32), np.diff(index.splits)[names],
        )  # fmt: skip

    @property
    def full(self) -> np.ndarray:
        """Whether all words of the name occur in the text."""
        return np.asarray(self.grade != PARTIAL)

    def only(self, wanted: np.ndarray) -> Self:
        """Return the mentions selected by a mask or a slice."""
        return type(self)(*(column[wanted] for column in self))

    def of_rows(self, first: int, last: int) -> Self:
        """Return the mentions in a range of texts; the texts are renumbered from 0."""
        some = self.only(slice(*np.searchsorted(self.rows, [first, last])))  # type: ignore[arg-type]
        return some._replace(rows=some.rows - first)

    def precisions(self, nr_rows: int, nr_labels: int) -> csr_matrix:
        """Return the precision of the mentions as a matrix of texts × labels."""
        some = self.precision > 0
        shape = (nr_rows, nr_labels)
        return csr_matrix((self.precision[some], (self.rows[some], self.labels[some])), shape=shape)
