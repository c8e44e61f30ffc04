"""The label head: one row of weights and a bias for every node of a level, sharded over the ranks."""

import logging

import numpy as np
import tensorflow as tf
import tf_keras

from xmc_tf.collective.strategy import CollectiveStrategy
from xmc_tf.collective.tables.every_row import EveryRow
from xmc_tf.collective.tables.initial_values import Initializer
from xmc_tf.collective.tables.pairs import PairScorer
from xmc_tf.collective.tables.routes import choose_route
from xmc_tf.collective.tables.row_access import get_rows
from xmc_tf.collective.tables.table import make_table
from xmc_tf.matcher.losses import HeadLoss
from xmc_tf.params import MatcherParams
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.partition import Partition, balanced

logger = logging.getLogger(__name__)

_BLOCK_ROWS = 16384
_SHORTEST = 1e-12  # what a vector is divided by at least


class LabelHead:
    """Scores documents against the nodes of a level: ``weights[node] · vector + bias[node]``.

    The rows stand in the order of the tree, so siblings are neighbours and belong to the same rank. A row is the
    node's weights with its bias as the last number; vectors get a constant 1 to go with it.

    Example:
        >>> head = LabelHead(strategy, "level_1", nr_nodes=16, dim=384)
        >>> losses = head.losses(vectors, candidates, targets, head_loss("squared-hinge"))      # [B]

    Args:
        strategy: the ranks.
        name: the same on all ranks; names messages and files.
        nr_nodes: of the level.
        dim: width of the encoder's vectors.
        splits: where the children of each node of the level above begin, and where the last ones end; None: anywhere
            a shard may begin.
        initial: first values of the rows, bias included; see ``collective.initial_values``.
        normalize: whether vectors are scaled to length 1 first.
        scale: what they are then multiplied by.
        route: what travels, rows or vectors; see ``PairScorer``.
        wire: the format in which it travels.
    """

    def __init__(
        self,
        strategy: CollectiveStrategy,
        name: str,
        nr_nodes: int,
        dim: int,
        splits: np.ndarray | None = None,
        *,
        initial: Initializer = "zeros",
        normalize: bool = False,
        scale: float = 1.0,
        route: str = "auto",
        wire: str = "fp32",
    ) -> None:
        self.strategy, self.nr_nodes, self.dim, self.splits = strategy, nr_nodes, dim, splits
        self.normalize, self.scale = normalize, scale
        # Not one of ``strategy.table``: a level's head goes when the next one has begun with it.
        self.table = make_table(
            name,
            nr_nodes,
            dim + 1,
            size=strategy.world_size(),
            rank=strategy.rank(),
            partition=shards(nr_nodes, splits, strategy.world_size()),
            initializer=initial,
            seed=strategy.seed,
        )
        self.scorer = PairScorer(self.table, route, wire)  # type: ignore[arg-type]  # checked there
        self.every_row = EveryRow(self.table, wire)  # type: ignore[arg-type]

    @classmethod
    def for_level(
        cls,
        strategy: CollectiveStrategy,
        level: int,
        nr_nodes: int,
        dim: int,
        splits: np.ndarray | None,
        params: MatcherParams,
    ) -> "LabelHead":
        """A head of zeros as the parameters of a level want it."""
        return cls(
            strategy,
            f"head/level_{level}",
            nr_nodes,
            dim,
            splits,
            normalize=params.normalizes,
            scale=params.scale,
            route=params.route,
            wire=params.wire,
        )

    @property
    def name(self) -> str:
        """The table's."""
        return self.table.name

    def inputs(self, vectors: tf.Tensor | np.ndarray) -> tf.Tensor:
        """The encoder's vectors as the rows see them: scaled, without the constant. Float32 ``[B, dim]``."""
        vectors = tf.cast(vectors, tf.float32)
        if self.normalize:
            vectors = vectors / tf.maximum(_lengths(vectors), _SHORTEST)
        return vectors * self.scale if self.scale != 1.0 else vectors

    def losses(
        self,
        vectors: tf.Tensor,
        candidates: tf.RaggedTensor,
        targets: tf.RaggedTensor,
        loss: HeadLoss,
        weights: tf.RaggedTensor | None = None,
    ) -> tf.Tensor:
        """Each document's loss, ``[B]``; all ranks call it together, some maybe without documents.

        Args:
            vectors: the encoder's, ``[B, dim]``.
            candidates: positions of nodes in the tree's order, int64.
            targets: 1 for what is right and 0 for what is not, in the shape of ``candidates``.
            loss: see ``losses``.
            weights: of the positives, in the shape of ``candidates``; only weighted losses read them.
        """
        counted = weights if loss.weighted else None
        sums = self.scorer.losses(self._with_one(vectors), candidates, targets, loss.of_pairs, counted)
        if not loss.mean:
            return sums
        return sums / tf.maximum(tf.cast(candidates.row_lengths(), tf.float32), 1.0)

    def losses_of_all(
        self, vectors: tf.Tensor, positives: tf.RaggedTensor, loss: HeadLoss, weights: tf.RaggedTensor | None = None
    ) -> tf.Tensor:
        """Each document's loss where every node is its candidate, ``[B]``; all ranks call it together.

        Args:
            vectors: the encoder's, ``[B, dim]``.
            positives: positions of the nodes that are right, int64; all others are not.
            loss: see ``losses``.
            weights: of the positives, in their shape; only weighted losses read them.
        """

        def of_rows(scores: tf.Tensor, targets: tf.Tensor, factors: tf.Tensor) -> tf.Tensor:
            losses = loss.of_pairs(scores, targets)
            return losses * factors if loss.weighted else losses

        sums = self.every_row.losses(self._with_one(vectors), positives, of_rows, weights if loss.weighted else None)
        return sums / self.nr_nodes if loss.mean else sums

    def scores(self, vectors: tf.Tensor, nodes: tf.RaggedTensor) -> tf.RaggedTensor:
        """Scores of the nodes asked for; all ranks call it together."""
        return self.scorer.scores(self._with_one(vectors), nodes)

    def choose_route(self, candidates: tf.RaggedTensor) -> None:
        """Lets a real batch decide what travels, before a graph is traced, in which nothing can be counted."""
        scorer = self.scorer
        if scorer.route != "auto" or scorer.choice is not None or self.table.size == 1:
            return
        instances = tf.cast(candidates.value_rowids(), tf.int32)
        scorer.choice = choose_route(self.table, candidates, instances, candidates.flat_values, scorer.wire)
        logger.info("%s: %s", self.name, scorer.choice.reason)

    def own_rows(self) -> tuple[int, int]:
        """The first row of this rank, and the one after its last."""
        return self.table.start, self.table.start + self.table.local_rows

    def gathered(self, communicator: Communicator) -> np.ndarray:
        """The whole head ``[nr_nodes, dim + 1]`` on every rank; for small ones only."""
        return communicator.allgather_array(self.local())

    def local(self) -> np.ndarray:
        """This rank's rows."""
        rows = np.empty((self.table.local_rows, self.dim + 1), np.float32)
        for low in range(0, len(rows), _BLOCK_ROWS):
            high = min(low + _BLOCK_ROWS, len(rows))
            rows[low:high] = get_rows(self.table.variable, low, high).numpy()
        return rows

    def nbytes(self) -> int:
        """Bytes of the whole head."""
        return 4 * self.nr_nodes * (self.dim + 1)

    def forget_slots(self) -> None:
        """Lets go of what the optimizer kept for the rows: the level is trained."""
        self.table.slots.clear()

    def _with_one(self, vectors: tf.Tensor) -> tf.Tensor:
        scaled = self.inputs(vectors)
        return tf.concat([scaled, tf.ones([tf.shape(scaled)[0], 1])], axis=1)


def random_rows(stddev: float = 0.02) -> tf_keras.initializers.Initializer:
    """First values of a head that nothing is known of."""
    return tf_keras.initializers.RandomNormal(stddev=stddev)


def shards(nr_nodes: int, splits: np.ndarray | None, size: int) -> Partition:
    """Even ranges of rows that begin where a cluster does; the root's children may be parted anywhere."""
    alone = splits is None or len(splits) <= 2
    return balanced(np.ones(nr_nodes, np.int64), size, None if alone else splits)


def _lengths(vectors: tf.Tensor) -> tf.Tensor:
    """Their lengths, with a gradient where a vector is zero."""
    return tf.sqrt(tf.maximum(tf.reduce_sum(tf.square(vectors), axis=1, keepdims=True), _SHORTEST**2))
