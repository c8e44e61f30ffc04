"""The choice of held-out documents, on which training measures its rankers."""

import numpy as np

SHARE = 10  # one in ten documents is held out
ENOUGH_WITHOUT_NAMES = 200
"""Least number of documents for probabilities from scores alone by default; names need fewer."""
FEWEST = 20  # documents needed to hold some out
_ENOUGH, _MOST_FOLDS = 4000, 3
_LARGEST_SHARE = 4  # a single fold has at most one in four documents
_MOST_DOCUMENTS = 20_000


def held_out_folds(nr_documents: int, seed: int, most: int | None = None) -> list[np.ndarray]:
    """Return the documents to hold out in each training, ascending; few documents need several trainings."""
    size = nr_documents // SHARE
    if nr_documents < FEWEST:
        return []
    folds = min(_MOST_FOLDS, -(-_ENOUGH // size))
    if most is not None:
        folds = min(folds, max(most, 1))
        size = min(size, _MOST_DOCUMENTS)
        if most <= 1:
            size = max(size, min(_ENOUGH, nr_documents // _LARGEST_SHARE))
    order = np.random.default_rng([seed, 0x66757365]).permutation(nr_documents)
    return [np.sort(order[fold * size : (fold + 1) * size]) for fold in range(folds)]
