"""Buckets of labels by frequency, to measure frequent and rare labels separately."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from xmc_tf.common.errors import InputError


@dataclass(frozen=True)
class FrequencyBuckets:
    """An assignment of each label to a bucket of frequency; the first bucket has the labels that do not occur.

    Args:
        names: names of the buckets: "0", "1 to 10", "11 to 50", "over 50".
        of_label: the bucket of each label.
    """

    names: tuple[str, ...]
    of_label: np.ndarray

    @classmethod
    def by_frequency(cls, frequency: np.ndarray, bounds: Sequence[int]) -> "FrequencyBuckets":
        """Put each label into the first bucket whose upper bound is at least its frequency.

        Example:
            >>> Buckets.by_frequency(np.array([0, 3, 11]), [10, 50]).of_label
            array([0, 1, 2], dtype=int32)

        Args:
            frequency: number of occurrences of each label.
            bounds: upper bounds (inclusive), ascending.
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
