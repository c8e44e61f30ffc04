"""Work in as many rounds on each rank, so that all ranks take part in the same collectives."""

import numpy as np

from xmc_tf.ranks.communicator import Communicator


def equal_rounds(begins: np.ndarray, most: int, communicator: Communicator) -> list[tuple[int, int]]:
    """Return ranges of documents with at most ``most`` entries each; call it on all ranks.

    A document with more entries has a range of its own. All ranks get equally many ranges, so the last may be empty.

    Example:
        >>> equal_rounds(np.array([0, 3, 4, 9]), 4, Solo())
        [(0, 2), (2, 3)]

    Args:
        begins: where the entries of each document begin, and the end of the last.
        most: maximum number of entries of a range.
        communicator: the ranks.
    """
    ranges, low = [], 0
    while low < len(begins) - 1:
        high = max(low + 1, int(np.searchsorted(begins, begins[low] + most, side="right")) - 1)
        ranges.append((low, high))
        low = high
    count = int(communicator.allreduce_array(np.array([len(ranges)]), "max")[0])
    return ranges + [(low, low)] * (count - len(ranges))
