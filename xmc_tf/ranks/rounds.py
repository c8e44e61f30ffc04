import numpy as np

from xmc_tf.ranks.communicator import Communicator


def equal_rounds(begins: np.ndarray, most: int, communicator: Communicator) -> list[tuple[int, int]]:
    """Split documents into ranges of at most ``most`` entries or of one longer document. All ranks must call this.

    All ranks get the same number of ranges; ranks with fewer get empty ranges at the end.
    """
    ranges, low = [], 0
    while low < len(begins) - 1:
        high = max(low + 1, int(np.searchsorted(begins, begins[low] + most, side="right")) - 1)
        ranges.append((low, high))
        low = high
    count = int(communicator.allreduce_array(np.array([len(ranges)]), "max")[0])
    return ranges + [(low, low)] * (count - len(ranges))
