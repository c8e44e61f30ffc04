"""Precision of predictions that are distributed over the ranks."""

from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.metrics import as_truth, mark_hits, top_labels
from xmc_tf.ranks.communicator import Communicator


def precision(
    truth: csr_matrix, predicted: csr_matrix, communicator: Communicator, ks: Sequence[int] = (1, 3, 5)
) -> dict[str, float]:
    """Return the precision at some k, in percent, over the documents of all ranks. Call it on all ranks.

    Example:
        >>> precision(truth, predicted, communicator)
        {'P@1': 45.2, 'P@3': 34.9, 'P@5': 28.1}

    Args:
        truth: this rank's documents × nodes, an entry for each positive.
        predicted: this rank's documents × nodes, with scores.
        communicator: the ranks.
        ks: numbers of predictions per document.
    """
    hits = mark_hits(as_truth(truth), top_labels(predicted, max(ks)))
    mine = np.array([len(hits), *(hits[:, :k].sum() for k in ks)], np.float64)
    documents, *found = communicator.allreduce_array(mine)
    return {f"P@{k}": float(100.0 * count / (k * max(documents, 1.0))) for k, count in zip(ks, found, strict=True)}
