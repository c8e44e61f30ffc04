"""The cross-entropy of a softmax over all items. The rows of the item table are sharded over the ranks.

Each rank computes the logarithm of its part of the partition function. The rank that owns the position adds the
parts up. So only vectors and two numbers per position are sent, regardless of the number of items.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf

from xmc_tf.collective.engines import operations
from xmc_tf.collective.meters.traffic import after, count_sent
from xmc_tf.collective.tables.lookup import fetch, request_rows
from xmc_tf.collective.tables.pairs import pair_dots
from xmc_tf.collective.tables.row_exchange import WireFormat, exchange
from xmc_tf.collective.tables.table import ShardedTable


class Sample(NamedTuple):
    items: tf.Tensor  # int64, possibly repeated
    log_expected: tf.Tensor  # logarithm of how often each is expected in the sample


class LogUniform:
    """The distribution ``P(item) = log((item + 2) / (item + 1)) / log(items + 1)``, for items numbered by frequency."""

    def __init__(self, items: int, count: int) -> None:
        self.items, self.count = items, count

    def draw(self, seed: tf.Tensor) -> Sample:
        """Draw a sample that depends only on ``seed``, a pair of integers such as the training seed and the step."""
        drawn = tf.random.stateless_uniform([self.count], seed, dtype=tf.float64, alg="philox")
        found = tf.cast(tf.exp(drawn * np.log(self.items + 1.0)), tf.int64) - 1
        found = tf.clip_by_value(found, 0, self.items - 1)
        share = tf.math.log1p(1.0 / (tf.cast(found, tf.float64) + 1.0)) / np.log(self.items + 1.0)
        return Sample(found, tf.cast(tf.math.log(share * self.count), tf.float32))


class ByFrequency:
    """The distribution in which probabilities are proportional to a power of the item counts."""

    def __init__(self, counts: np.ndarray, count: int, power: float = 0.75) -> None:
        self.count = count
        shares = np.maximum(np.asarray(counts, np.float64), 1e-9) ** power
        self._ends = tf.constant(np.cumsum(shares / shares.sum()), tf.float64)
        self._log_expected = tf.constant(np.log(shares / shares.sum() * count), tf.float32)

    def draw(self, seed: tf.Tensor) -> Sample:
        """Draw a sample that depends only on ``seed``, a pair of integers such as the training seed and the step."""
        drawn = tf.random.stateless_uniform([self.count], seed, dtype=tf.float64, alg="philox")
        found = tf.searchsorted(self._ends, drawn, side="right", out_type=tf.int64)
        found = tf.minimum(found, tf.size(self._ends, tf.int64) - 1)
        return Sample(found, tf.gather(self._log_expected, found))


Sampler: TypeAlias = LogUniform | ByFrequency


# Bytes of scores that are in memory at a time. Tests lower this.
CHUNK_BYTES = 32 * 2**20
LEAST = -1e30  # instead of minus infinity, whose differences are not numbers


@tf.custom_gradient
def log_sum_exp(
    vectors: tf.Tensor, rows: tf.Tensor, offsets: tf.Tensor, excluded: tf.Tensor
) -> tuple[tf.Tensor, Callable]:
    """Return ``log(sum(exp(vectors @ rows.T + offsets)))`` over the rows, ``[n]``, or ``LEAST`` if there are no rows.

    The scores are computed in chunks of rows, and computed again for the gradients, which are exact. ``offsets`` has no
    gradient. ``excluded`` lists the (vector, row) pairs to leave out, int32 ``[pairs, 2]``, ordered by row.
    """
    vectors, rows = tf.convert_to_tensor(vectors), tf.convert_to_tensor(rows)
    count = tf.shape(rows)[0]
    excluded = tf.reshape(excluded, [-1, 2]) if excluded.shape.rank == 2 else tf.zeros([0, 2], tf.int32)
    size = tf.maximum(1, tf.cast(CHUNK_BYTES // 4, tf.int32) // tf.maximum(1, tf.shape(vectors)[0]))
    chunks = -(-count // size)

    def scores(number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        low, high = number * size, tf.minimum((number + 1) * size, count)
        part = rows[low:high]
        found = tf.matmul(vectors, part, transpose_b=True) + offsets[low:high]
        bounds = tf.searchsorted(excluded[:, 1], tf.stack([low, high]))
        first, last = bounds[0], bounds[1]
        pairs = excluded[first:last] - [[0, low]]
        return tf.tensor_scatter_nd_update(found, pairs, tf.fill([last - first], LEAST)), part

    def add(number: tf.Tensor, most: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        found, _ = scores(number)
        new = tf.maximum(most, tf.reduce_max(found, axis=1))
        total = total * tf.exp(most - new) + tf.reduce_sum(tf.exp(found - new[:, None]), axis=1)
        return number + 1, new, total

    begin = (0, tf.fill(tf.shape(vectors)[:1], LEAST), tf.zeros(tf.shape(vectors)[:1]))
    # Sequential, so that only one chunk is in memory.
    _, most, total = tf.while_loop(lambda number, *_: number < chunks, add, begin, parallel_iterations=1)
    result = tf.maximum(most + tf.math.log(tf.maximum(total, 1e-37)), LEAST)

    def back(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, None, None]:
        def add_gradient(
            number: tf.Tensor, of_vectors: tf.Tensor, of_rows: tf.TensorArray
        ) -> tuple[tf.Tensor, tf.Tensor, tf.TensorArray]:
            found, part = scores(number)
            share = tf.exp(found - result[:, None]) * upstream[:, None]
            of_rows = of_rows.write(number, tf.matmul(share, vectors, transpose_a=True))
            return number + 1, of_vectors + tf.matmul(share, part), of_rows

        pieces = tf.TensorArray(tf.float32, size=chunks, infer_shape=False, element_shape=[None, rows.shape[1]])
        _, of_vectors, pieces = tf.while_loop(
            lambda number, *_: number < chunks, add_gradient, (0, tf.zeros_like(vectors), pieces), parallel_iterations=1
        )
        of_rows = tf.cond(chunks > 0, pieces.concat, lambda: tf.zeros_like(rows))
        return of_vectors, tf.ensure_shape(of_rows, rows.shape), None, None

    return result, back


class GatheredPositions(NamedTuple):
    """The positions of all ranks, in rank order."""

    vectors: tf.Tensor
    targets: tf.Tensor
    sent: tf.Tensor  # positions to each rank
    received: tf.Tensor  # positions from each rank


class ItemSoftmax:
    """The loss ``-log softmax(vectors @ table.T)[targets]``, over all items or estimated from a sample.

    With a sample, the partition function is the target's term plus an unbiased estimate of the other items' terms.
    Sampled items that are the target of a position are left out of its estimate.
    """

    def __init__(
        self, table: ShardedTable, sampler: Sampler | None = None, route: str = "features", wire: WireFormat = "fp32"
    ) -> None:
        self.table, self.sampler, self.route, self.wire = table, sampler, route, wire

    @tf.autograph.experimental.do_not_convert
    def losses(self, vectors: tf.Tensor, targets: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Return the loss of each position, ``[n]``. All ranks must call this method with the same ``seed``."""
        sample = None if self.sampler is None else self.sampler.draw(seed)
        if sample is not None and self.route == "rows":
            return self._of_fetched(vectors, targets, sample)
        here = gather_positions(self.table, vectors, targets, self.wire)
        own, target_score = self._own_target_scores(here)
        if sample is None:
            rows = tf.convert_to_tensor(self.table.variable)
            part = log_sum_exp(here.vectors, rows, tf.zeros([self.table.local_rows]), tf.zeros([0, 2], tf.int32))
        else:
            mine = (sample.items >= self.table.start) & (sample.items < self.table.start + self.table.local_rows)
            items, log_expected = tf.boolean_mask(sample.items, mine), tf.boolean_mask(sample.log_expected, mine)
            rows = tf.gather(self.table.variable, items - self.table.start)
            part = log_sum_exp(here.vectors, rows, -log_expected, _pairs_of_equals(here.targets, items))
            part = _log_add(part, tf.where(own, target_score, LEAST))
        table = self.table
        if table.size == 1:
            return part - target_score
        back = exchange(
            tf.stack([part, target_score], axis=1), here.received, here.sent, rank=table.rank,
            name=f"{table.name}/partition", kind="losses",
        )  # fmt: skip
        parts = tf.reshape(back, [table.size, here.sent[0], 2])
        return tf.reduce_logsumexp(parts[:, :, 0], axis=0) - tf.reduce_sum(parts[:, :, 1], axis=0)

    def _own_target_scores(self, here: GatheredPositions) -> tuple[tf.Tensor, tf.Tensor]:
        """Return a mask of the targets in this rank's shard, and the targets' scores, which are 0 outside the shard."""
        local = here.targets - self.table.start
        own = (local >= 0) & (local < self.table.local_rows)
        positions = tf.cast(tf.where(own)[:, 0], tf.int32)
        unique, at = tf.unique(tf.gather(local, positions))
        scores = pair_dots(here.vectors, positions, tf.gather(self.table.variable, unique), at)
        return own, tf.tensor_scatter_nd_update(tf.zeros_like(here.vectors[:, 0]), positions[:, None], scores)

    def _of_fetched(self, vectors: tf.Tensor, targets: tf.Tensor, sample: Sample) -> tf.Tensor:
        """Return the losses, computed from the fetched rows of the sample and of the targets."""
        wanted = tf.concat([sample.items, targets], axis=0)
        request = request_rows(self.table, wanted)
        rows = fetch(self.table, request, self.wire)
        drawn = tf.size(sample.items)
        positions = tf.range(tf.size(targets))
        score = pair_dots(vectors, positions, rows, request.positions[drawn:])
        excluded = _pairs_of_equals(targets, sample.items)
        part = log_sum_exp(vectors, tf.gather(rows, request.positions[:drawn]), -sample.log_expected, excluded)
        return _log_add(part, score) - score


def gather_positions(
    table: ShardedTable, vectors: tf.Tensor, targets: tf.Tensor, wire: WireFormat = "fp32"
) -> GatheredPositions:
    """Return the positions of all ranks. All ranks must call this function."""
    targets, count = tf.cast(targets, tf.int64), tf.shape(vectors)[0]
    sent = tf.fill([table.size], count)
    if table.size == 1:
        return GatheredPositions(vectors, targets, sent, sent)
    with after(count_sent("ids", sent, table.rank, 8)):
        everyone, received = operations.alltoall(tf.tile(targets, [table.size]), sent, f"{table.name}/targets")
    moved = exchange(
        tf.tile(vectors, [table.size, 1]), sent, received, rank=table.rank, name=f"{table.name}/positions", wire=wire,
        kind="vectors",
    )  # fmt: skip
    return GatheredPositions(moved, everyone, sent, received)


def _pairs_of_equals(targets: tf.Tensor, items: tf.Tensor) -> tf.Tensor:
    """Return the (position, place in the sample) pairs whose target and sampled item are equal, ordered by place."""
    pairs = tf.where(items[:, None] == targets[None, :])
    return tf.cast(tf.reverse(pairs, axis=[1]), tf.int32)


def _log_add(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    return tf.reduce_logsumexp(tf.stack([left, right]), axis=0)
