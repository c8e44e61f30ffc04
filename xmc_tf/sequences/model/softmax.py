"""The cross-entropy of a softmax over all items, whose rows are sharded over the ranks.

Each rank computes the logarithm of its part of the partition function, and the position's rank sums them. So only
vectors and two numbers per position are sent, whatever the number of items.
"""

from typing import NamedTuple

import tensorflow as tf

from xmc_tf.collective.engines import operations
from xmc_tf.collective.meters.traffic import after, count_sent
from xmc_tf.collective.tables.lookup import fetch
from xmc_tf.collective.tables.pair_dots import pair_dots
from xmc_tf.collective.tables.row_requests import request_rows
from xmc_tf.collective.tables.table import ShardedTable
from xmc_tf.collective.tables.wire import WireFormat, exchange
from xmc_tf.sequences.model.chunks import LEAST, log_sum_exp
from xmc_tf.sequences.model.sampling import Sample, Sampler


class GatheredPositions(NamedTuple):
    """The positions of all ranks, in rank order."""

    vectors: tf.Tensor
    targets: tf.Tensor
    sent: tf.Tensor  # positions to each rank
    received: tf.Tensor  # positions from each rank


class ItemSoftmax:
    """The loss ``-log softmax(vectors @ table.T)[targets]``, over all items or over a sample; collective.

    In a sampled loss, the partition function is the target's share plus an unbiased estimate of the others' from the
    sample. Sampled items that are the target of a position do not count for it.
    """

    def __init__(
        self, table: ShardedTable, sampler: Sampler | None = None, route: str = "features", wire: WireFormat = "fp32"
    ) -> None:
        self.table, self.sampler, self.route, self.wire = table, sampler, route, wire

    @tf.autograph.experimental.do_not_convert
    def losses(self, vectors: tf.Tensor, targets: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Return the loss of each position, ``[n]``; ``seed`` must be the same on all ranks."""
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
        return self._combined(here, part, target_score)

    def _own_target_scores(self, here: GatheredPositions) -> tuple[tf.Tensor, tf.Tensor]:
        """Return which targets are this rank's items, and their scores; 0 for the others."""
        local = here.targets - self.table.start
        own = (local >= 0) & (local < self.table.local_rows)
        positions = tf.cast(tf.where(own)[:, 0], tf.int32)
        unique, at = tf.unique(tf.gather(local, positions))
        scores = pair_dots(here.vectors, positions, tf.gather(self.table.variable, unique), at)
        return own, tf.tensor_scatter_nd_update(tf.zeros_like(here.vectors[:, 0]), positions[:, None], scores)

    def _combined(self, here: GatheredPositions, part: tf.Tensor, target_score: tf.Tensor) -> tf.Tensor:
        """Return the losses of this rank's positions, from the parts of all ranks."""
        table = self.table
        if table.size == 1:
            return part - target_score
        back = exchange(
            tf.stack([part, target_score], axis=1), here.received, here.sent, rank=table.rank,
            name=f"{table.name}/partition", kind="losses",
        )  # fmt: skip
        parts = tf.reshape(back, [table.size, here.sent[0], 2])
        return tf.reduce_logsumexp(parts[:, :, 0], axis=0) - tf.reduce_sum(parts[:, :, 1], axis=0)

    def _of_fetched(self, vectors: tf.Tensor, targets: tf.Tensor, sample: Sample) -> tf.Tensor:
        """Return the losses after fetching the rows of the sample and of the targets."""
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
    """Return the positions of all ranks; collective."""
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
    """Return the pairs (position, place in the sample) of positions whose target is in the sample, by place."""
    pairs = tf.where(items[:, None] == targets[None, :])
    return tf.cast(tf.reverse(pairs, axis=[1]), tf.int32)


def _log_add(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    return tf.reduce_logsumexp(tf.stack([left, right]), axis=0)
