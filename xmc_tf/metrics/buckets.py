"""Labels grouped by how often they occur: where a system is good, at the head or at the tail."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from xmc_tf.common.errors import InputError


@dataclass(frozen=True)
class Buckets:
    """Every label in one bucket of frequency; the first holds the labels that do not occur at all.

    Args:
        names: what to call the buckets: "0", "1 to 10", "11 to 50", "over 50".
        of_label: the bucket of each label.
    """

    names: tuple[str, ...]
    of_label: np.ndarray

    @classmethod
    def by_frequency(cls, frequency: np.ndarray, bounds: Sequence[int]) -> "Buckets":
        """Put each label into the first bucket whose upper bound its frequency does not exceed.

        Example:
            >>> Buckets.by_frequency(np.array([0, 3, 11]), [10, 50]).of_label
            array([0, 1, 2], dtype=int32)

        Args:
            frequency: how often each label occurs.
            bounds: upper bounds, included, ascending.
        """
        if not bounds or min(bounds) < 1 or any(b <= a for a, b in itertools.pairwise(bounds)):
            raise InputError(
                "the bounds of the buckets are invalid",
                expected="ascending whole numbers from 1, as in 10,50",
                received=",".join(map(str, bounds)) or "nothing",
            )
        edges = [0, *bounds]
        names = ["0"]
        names += [f"{a + 1} to {b}" if b > a + 1 else f"{b}" for a, b in itertools.pairwise(edges)]
        names.append(f"over {bounds[-1]}")
        return cls(tuple(names), np.searchsorted(np.array(edges), frequency, side="left").astype(np.int32))
