"""Random tables and batches for any number of ranks, and the expected results, in numpy.

Each rank draws the batches of all ranks from the same seed, so that it can compute the expected results by itself.
"""

import os
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from xmc_tf.collective.tables.table import ShardedTable, make_table
from xmc_tf.ranks.partition import Partition

# Only each STRIDE-th case is run: with 5 or 7, cases of all sizes and shapes occur.
STRIDE = int(os.environ.get("XMC_TF_TEST_STRIDE", "5"))
SHAPES = ["flat", "matrix", "cube", "ragged"]


@dataclass(frozen=True)
class Case:
    """A table and, for each rank, its ids (lists of lists if ragged) and a factor for each looked-up row."""

    number: int
    values: np.ndarray
    partition: Partition
    shape: str
    ids: list
    factors: list[np.ndarray]

    def table(self, rank):
        rows, dim = self.values.shape
        return make_table(
            f"case_{self.number}",
            rows,
            dim,
            size=self.partition.size,
            rank=rank,
            partition=self.partition,
            initializer=self.values,
        )

    def tensor(self, rank, dtype=tf.int64):
        """Return a rank's ids as a tensor."""
        if self.shape != "ragged":
            return tf.constant(self.ids[rank], dtype)
        lengths = [len(bag) for bag in self.ids[rank]]
        return tf.RaggedTensor.from_row_lengths(tf.constant(self.flat(rank), dtype), tf.constant(lengths, tf.int64))

    def flat(self, rank):
        """Return a rank's ids as a flat array."""
        if self.shape == "ragged":
            return np.array([one for bag in self.ids[rank] for one in bag], np.int64)
        return self.ids[rank].reshape(-1)

    def share(self, whole, table: ShardedTable):
        """Return a rank's rows of ``whole``."""
        return whole[table.start : table.start + table.local_rows]


def draw_case(number, size, shape=None):
    """Return case ``number``; edge cases come first."""
    rng = np.random.default_rng([number, size])
    # One row (more ranks than rows), fewer rows than ranks, rows that do not divide, and any.
    rows = [1, max(1, size - 1), 4 * size + 1, int(rng.integers(2, 60))][number % 4]
    dim = int(rng.choice([1, 3, 8]))
    values = rng.normal(size=(rows, dim)).astype(np.float32)
    bounds = np.linspace(0, rows, size + 1).astype(np.int64)
    if number % 3 == 1:  # any cuts, empty shares among them
        bounds[1:-1] = np.sort(rng.integers(0, rows + 1, size - 1))
    shape = SHAPES[(number // 4) % 4] if shape is None else shape
    ids = [_ids(rng, rows, shape, kind=(number + rank) % 5) for rank in range(size)]
    factors = [rng.normal(size=(_count(one, shape), dim)).astype(np.float32) for one in ids]
    return Case(number, values, Partition(bounds), shape, ids, factors)


def _ids(rng, rows, shape, kind):
    """Return the ids of a rank: none, equal, or random ones."""
    count = 0 if kind == 0 else int(rng.integers(1, 7))

    def some(*shape):
        return np.full(shape, rng.integers(rows)) if kind == 1 else rng.integers(0, rows, shape)

    if shape == "ragged":
        return [list(some(int(length))) for length in rng.integers(0, 5, count)]
    return some(*{"flat": (count,), "matrix": (count, 3), "cube": (count, 2, 2)}[shape])


def _count(ids, shape):
    return sum(len(bag) for bag in ids) if shape == "ragged" else ids.size


def summed_gradient(case):
    """Return the gradient of the sum over all ranks of factors times looked-up rows."""
    whole = np.zeros(case.values.shape, np.float64)
    for rank in range(case.partition.size):
        np.add.at(whole, case.flat(rank), case.factors[rank])
    return whole


def as_dense(gradient, local_rows, dim):
    """Return the gradient of some rows as a dense one."""
    whole = np.zeros((local_rows, dim), np.float64)
    if gradient is not None:
        assert isinstance(gradient, tf.IndexedSlices)
        np.add.at(whole, gradient.indices.numpy(), gradient.values.numpy())
    return whole


def bags(case, rank):
    """Return a rank's ids by bag (the last dimension)."""
    if case.shape == "ragged":
        return case.ids[rank]
    ids = case.ids[rank]
    return list(ids.reshape(-1, ids.shape[-1])) if ids.ndim > 1 else [ids]
