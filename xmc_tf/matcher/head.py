"""The label head and its losses. It has a row (weights and a bias) for each node of a level, sharded over ranks."""

import logging
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from xmc_tf.collective.strategy import CollectiveStrategy
from xmc_tf.collective.tables.full_table_loss import FullTableLoss, InPlaceAdam, RowStep
from xmc_tf.collective.tables.initial_values import Initializer
from xmc_tf.collective.tables.pairs import PairLoss, PairScorer, choose_route
from xmc_tf.collective.tables.table import get_rows, make_table
from xmc_tf.matcher.heads import SHORTEST, Scaling
from xmc_tf.params import MatcherParams
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.partition import Partition, balanced

logger = logging.getLogger(__name__)

_BLOCK_ROWS = 16384
_MARGIN = 1.0


@dataclass(frozen=True)
class HeadLoss:
    """A loss of the label head: a sum over (document, candidate) pairs, so that each rank can compute the pairs of its
    own rows. A document's loss is the mean over its candidates for hinge losses, and the sum for cross-entropy. A
    step's loss is the mean over the global batch, in which each window of a long document counts as a document.
    """

    of_pairs: PairLoss  # maps scores and targets (0 or 1) to losses, element by element
    weighted: bool = False  # multiply the loss of a positive by its weight
    mean: bool = True  # divide a document's loss by the number of its candidates


def head_loss(name: str) -> HeadLoss:
    return _LOSSES[name]


def hinge(scores: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Return the hinge loss: the distance by which a score misses the margin."""
    return tf.nn.relu(_MARGIN - (2.0 * targets - 1.0) * scores)


def squared_hinge(scores: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Return the squared hinge loss, which is smooth at the margin."""
    return tf.square(hinge(scores, targets))


_LOSSES = {
    "hinge": HeadLoss(hinge), "squared-hinge": HeadLoss(squared_hinge),
    "weighted-hinge": HeadLoss(hinge, weighted=True), "weighted-squared-hinge": HeadLoss(squared_hinge, weighted=True),
    "cross-entropy": HeadLoss(lambda s, t: tf.nn.sigmoid_cross_entropy_with_logits(labels=t, logits=s), mean=False),
}  # fmt: skip


class LabelHead:
    """The label head of a level, which scores documents against nodes: ``weights[node] · embedding + bias[node]``. The
    rows are in tree order, and siblings belong to the same rank, except the root's children. A row contains the node's
    weights, then its bias, so embeddings are extended by a constant 1. With ``in_place``, the rows are bfloat16, and
    ``InPlaceAdam`` trains them without an optimizer. For ``route`` and ``wire``, see ``PairScorer``.
    """

    def __init__(
        self, strategy: CollectiveStrategy, name: str, nr_nodes: int, dim: int, splits: np.ndarray | None = None, *,
        initial: Initializer = "zeros", scaling: Scaling | None = None, route: str = "auto", wire: str = "fp32",
        in_place: bool = False,
    ) -> None:  # fmt: skip
        self.strategy, self.nr_nodes, self.dim, self.splits = strategy, nr_nodes, dim, splits
        self.scaling = scaling or Scaling()
        # Not created by ``strategy.table``, which keeps its tables: the next level replaces this head.
        self.table = make_table(
            name, nr_nodes, dim + 1, size=strategy.world_size(), rank=strategy.rank(),
            partition=shards(nr_nodes, splits, strategy.world_size()), initializer=initial, seed=strategy.seed,
            trainable=not in_place, dtype=tf.bfloat16 if in_place else tf.float32,
        )  # fmt: skip
        self.scorer = PairScorer(self.table, route, wire)  # type: ignore[arg-type]  # checked there
        self.full_table_loss = FullTableLoss(self.table, wire)  # type: ignore[arg-type]

    @classmethod
    def for_level(
        cls, strategy: CollectiveStrategy, level: int, nr_nodes: int, dim: int, splits: np.ndarray | None,
        params: MatcherParams,
    ) -> "LabelHead":  # fmt: skip
        """Return the head of a level, initialized with zeros, with the settings in ``params``."""
        return cls(
            strategy, f"head/level_{level}", nr_nodes, dim, splits, scaling=Scaling(params.normalizes, params.scale),
            route=params.route, wire=params.wire, in_place=params.trains_head_in_place,
        )  # fmt: skip

    @property
    def communicator(self) -> Communicator:
        """The communicator of the ranks that hold the rows."""
        return self.strategy.communicator

    @property
    def name(self) -> str:
        return self.table.name

    def inputs(self, vectors: tf.Tensor | np.ndarray) -> tf.Tensor:
        """Return embeddings scaled for the product with the rows, without the constant: float32 ``[B, dim]``."""
        vectors = tf.cast(vectors, tf.float32)
        if self.scaling.normalize:
            # The square root has a finite gradient even at zero vectors.
            squares = tf.reduce_sum(tf.square(vectors), axis=1, keepdims=True)
            vectors = vectors / tf.maximum(tf.sqrt(tf.maximum(squares, SHORTEST**2)), SHORTEST)
        return vectors * self.scaling.factor if self.scaling.factor != 1.0 else vectors

    def losses(
        self, vectors: tf.Tensor, candidates: tf.RaggedTensor, targets: tf.RaggedTensor, loss: HeadLoss,
        weights: tf.RaggedTensor | None = None,
    ) -> tf.Tensor:  # fmt: skip
        """Return each document's loss, ``[B]``. All ranks must call it, even those without documents."""
        counted = weights if loss.weighted else None
        sums = self.scorer.losses(self._with_one(vectors), candidates, targets, loss.of_pairs, counted)
        if not loss.mean:
            return sums
        return sums / tf.maximum(tf.cast(candidates.row_lengths(), tf.float32), 1.0)

    def losses_of_all(
        self, vectors: tf.Tensor, positives: tf.RaggedTensor, loss: HeadLoss, weights: tf.RaggedTensor | None = None,
        in_place: tuple[InPlaceAdam, RowStep] | None = None,
    ) -> tf.Tensor:  # fmt: skip
        """Return documents' losses over all nodes, ``[B]``; ``in_place`` also trains rows. All ranks must call it."""

        def of_rows(scores: tf.Tensor, targets: tf.Tensor, factors: tf.Tensor) -> tf.Tensor:
            losses = loss.of_pairs(scores, targets)
            return losses * factors if loss.weighted else losses

        counted = weights if loss.weighted else None
        if in_place is None:
            sums = self.full_table_loss.losses(self._with_one(vectors), positives, of_rows, counted)
        else:
            rows, step = in_place
            if loss.mean:
                step = step._replace(factor=step.factor / self.nr_nodes)
            sums = rows.losses(self._with_one(vectors), positives, of_rows, counted, step=step)
        return sums / self.nr_nodes if loss.mean else sums

    def choose_route(self, candidates: tf.RaggedTensor) -> None:
        """Choose the route by counting a batch's ids, which graphs cannot do. All ranks must call it before tracing."""
        scorer = self.scorer
        if scorer.route != "auto" or scorer.choice is not None or self.table.size == 1:
            return
        instances = tf.cast(candidates.value_rowids(), tf.int32)
        scorer.choice = choose_route(self.table, candidates, instances, candidates.flat_values, scorer.wire)
        logger.info("%s: %s", self.name, scorer.choice.reason)

    def own_rows(self) -> tuple[int, int]:
        """Return the range of this rank's rows (exclusive end)."""
        return self.table.start, self.table.start + self.table.local_rows

    def local(self) -> np.ndarray:
        """Return this rank's rows as float32 ``[rows, dim + 1]``."""
        rows = np.empty((self.table.local_rows, self.dim + 1), np.float32)
        for low in range(0, len(rows), _BLOCK_ROWS):
            high = min(low + _BLOCK_ROWS, len(rows))
            rows[low:high] = get_rows(self.table.variable, low, high).numpy()
        return rows

    def rows_between(self, low: int, high: int) -> np.ndarray:
        """Return the rows from ``low`` to ``high`` (exclusive), broadcast by their ranks. All ranks must call it."""
        table, parts = self.table, []
        bounds = table.partition.bounds
        for owner in range(table.size):
            begin, end = max(low, int(bounds[owner])), min(high, int(bounds[owner + 1]))
            if begin >= end:
                continue
            mine = None
            if owner == table.rank:
                mine = get_rows(table.variable, begin - table.start, end - table.start).numpy()
            parts.append(self.communicator.broadcast_array(mine, owner))
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _with_one(self, vectors: tf.Tensor) -> tf.Tensor:
        scaled = self.inputs(vectors)
        return tf.concat([scaled, tf.ones([tf.shape(scaled)[0], 1])], axis=1)


def shards(nr_nodes: int, splits: np.ndarray | None, size: int) -> Partition:
    """Split the rows evenly into ranges of whole clusters, one per rank; the root's children may be split anywhere."""
    alone = splits is None or len(splits) <= 2
    return balanced(np.ones(nr_nodes, np.int64), size, None if alone else splits)
