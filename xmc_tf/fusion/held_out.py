"""Documents that are held out to learn from how good rankers are on documents they have not seen."""

import numpy as np

SHARE = 10  # one in ten documents is held out
_ENOUGH, _MOST_FOLDS, _FEWEST = 4000, 3, 20


def held_out_folds(nr_documents: int, seed: int) -> list[np.ndarray]:
    """Return the documents to hold out in each of some trainings, ascending; few documents need several trainings.

    Args:
        nr_documents: number of training documents; if there are too few, the result is empty.
        seed: random seed.
    """
    size = nr_documents // SHARE
    if nr_documents < _FEWEST:
        return []
    folds = min(_MOST_FOLDS, -(-_ENOUGH // size))
    order = np.random.default_rng([seed, 0x66757365]).permutation(nr_documents)
    return [np.sort(order[fold * size : (fold + 1) * size]) for fold in range(folds)]
