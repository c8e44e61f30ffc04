"""A small collection with planted errors: labels that were removed, and random ones."""

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

THEMES, LABELS_OF_THEME, DOCUMENTS = 6, 5, 400


class TreesAndParams(NamedTuple):
    """A collection whose errors are known: texts, names, labels with errors, and the errors."""

    texts: list[str]
    names: list[str]
    labels: csr_matrix
    removed: set[tuple[int, int]]
    wrong: set[tuple[int, int]]

    @property
    def lists(self):
        """The labels of each document, by name."""
        Y = self.labels
        return [[self.names[label] for label in Y.indices[a:b]] for a, b in zip(Y.indptr, Y.indptr[1:], strict=False)]


def planted(errors=12, seed=0):
    """Return a collection: a document has labels of one theme, whose names and words are in its text."""
    rng = np.random.default_rng(seed)
    count = THEMES * LABELS_OF_THEME
    words = ["".join(rng.choice(list("abcdefghijklmnop"), 8)) for _ in range(count * 4)]
    names = [f"{words[4 * label]} {words[4 * label + 1]}" for label in range(count)]
    truth = np.zeros((DOCUMENTS, count), bool)
    texts = []
    for row in range(DOCUMENTS):
        theme = row % THEMES
        own = theme * LABELS_OF_THEME + rng.choice(LABELS_OF_THEME, 3, replace=False)
        truth[row, own] = True
        spoken = [word for label in own for word in rng.choice(words[4 * label : 4 * label + 4], 3, replace=False)]
        texts.append(" ".join(rng.permutation([*spoken, *rng.choice(words, 2)])))
    given = truth.copy()
    rows = rng.permutation(DOCUMENTS)
    removed = {(int(row), int(rng.choice(np.flatnonzero(truth[row])))) for row in rows[:errors]}
    wrong = {(int(row), int(rng.choice(np.flatnonzero(~truth[row])))) for row in rows[errors : 2 * errors]}
    for row, label in removed:
        given[row, label] = False
    for row, label in wrong:
        given[row, label] = True
    return TreesAndParams(texts, names, csr_matrix(given, dtype=np.float32), removed, wrong)
