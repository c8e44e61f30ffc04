"""The creation of tables: sharded and growing ones, Keras' Embedding, several in one layer, and the lookup in them."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

import keras
import tensorflow as tf

from xmc_tf.collective.growing.eviction import Rule
from xmc_tf.collective.growing.keras_embedding import GrowingEmbedding, make_growing_with
from xmc_tf.collective.growing.lookup import growing_lookup
from xmc_tf.collective.growing.table import GrowingTable, make_growing_table
from xmc_tf.collective.several.collection import EmbeddingCollection
from xmc_tf.collective.several.embedding_table import EmbeddingTable
from xmc_tf.collective.several.planner import PlanOptions, make_plan
from xmc_tf.collective.tables.bags import Combiner, Ids
from xmc_tf.collective.tables.initial_values import Initializer
from xmc_tf.collective.tables.keras_embedding import shard_embeddings
from xmc_tf.collective.tables.lookup import lookup
from xmc_tf.collective.tables.table import ShardedTable, make_table
from xmc_tf.collective.tables.wire import WireFormat, check_format
from xmc_tf.common.errors import InputError
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.partition import Partition, even_rows

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _EmbeddingScope:
    """The options of the tables that are made inside an embedding scope."""

    shard_above: int
    wire: WireFormat


class TableCreation:
    """Make tables whose rows are sharded over the ranks, and look up rows in them.

    ``CollectiveStrategy`` adds training to it.

    Args:
        communicator: the ranks.
        seed: the seed of the tables' initial values.
        shard_above: tables with more bytes are sharded, smaller ones are replicated.
        wire: the format in which rows are sent.
    """

    def __init__(self, communicator: Communicator, seed: int, shard_above: int, wire: WireFormat) -> None:
        check_format(wire)
        self.communicator = communicator
        self.seed = seed
        self.tables: list[ShardedTable] = []
        self._wires: dict[ShardedTable, WireFormat] = {}
        self._defaults = _EmbeddingScope(shard_above, wire)
        self._embedding_scope: _EmbeddingScope | None = None

    def world_size(self) -> int:
        """Return the number of ranks."""
        return self.communicator.size

    def rank(self) -> int:
        """Return the number of this rank."""
        return self.communicator.rank

    @contextmanager
    def embedding_scope(self, shard_above: int | None = None, wire: WireFormat | None = None) -> Iterator[Self]:
        """Shard large embeddings that are made inside, by Keras' Embedding or ``variable``, by rows.

        Args:
            shard_above: default: the strategy's; 0 shards all embeddings.
            wire: default: the strategy's.
        """
        chosen = _EmbeddingScope(
            self._defaults.shard_above if shard_above is None else shard_above,
            self._defaults.wire if wire is None else wire,
        )
        check_format(chosen.wire)
        before, self._embedding_scope = self._embedding_scope, chosen
        try:
            with (
                shard_embeddings(self._table_of_layer, lambda rows, dim: _large(rows, dim, chosen), chosen.wire),
                make_growing_with(lambda layer: (self._growing_table_of_layer(layer), chosen.wire)),
            ):
                yield self
        finally:
            self._embedding_scope = before

    def variable(
        self,
        name: str,
        shape: Sequence[int],
        initializer: Initializer = "uniform",
        trainable: bool = True,
    ) -> ShardedTable | tf.Variable:
        """Return a sharded table for a large matrix inside ``embedding_scope()``, otherwise a replicated variable.

        Example:
            >>> with strategy.embedding_scope(shard_above=0):
            ...     table = strategy.variable("var_1", shape=(1000, 3), initializer="ones")
            >>> rows = strategy.lookup(table, [0, 1, 2, 5, 6, 7])

        Args:
            name: name of the variable; checkpoints identify it by this name.
            shape: its shape.
            initializer: name of a Keras initializer, a matrix, or a function from row numbers to rows.
            trainable: whether optimizers update it.
        """
        within = self._embedding_scope
        if within is not None and len(shape) == 2 and _large(shape[0], shape[1], within):
            return self.table(name, shape[0], shape[1], initializer, trainable=trainable)
        # The same values as those of a table, so that shard_above does not change the training.
        rows, dim = (shape[0], shape[1]) if len(shape) == 2 else (1, int(tf.TensorShape(shape).num_elements()))
        values = make_table(name, rows, dim, initializer=initializer, seed=self.seed).variable
        return tf.Variable(tf.reshape(values, shape), trainable=trainable, name=name)

    def table(
        self,
        name: str,
        rows: int,
        dim: int,
        initializer: Initializer = "uniform",
        *,
        partition: Partition | None = None,
        trainable: bool = True,
    ) -> ShardedTable:
        """Return a new table that is sharded by rows, whatever its size.

        Args:
            name: a unique name, the same on all ranks.
            rows: the number of rows of the whole table.
            dim: the width of a row.
            initializer: see ``initial_values.Initializer``.
            partition: the rows of each rank; default: equal ranges.
            trainable: whether gradient tapes watch the table automatically.
        """
        self._check_name(name)
        made = make_table(
            name,
            rows,
            dim,
            size=self.world_size(),
            rank=self.rank(),
            partition=partition,
            initializer=initializer,
            seed=self.seed,
            trainable=trainable,
        )
        self._add(made)
        logger.info("table %r: this rank has %d of %d rows", name, made.local_rows, rows)
        return made

    def growing_table(
        self,
        name: str,
        dim: int,
        initializer: str | keras.initializers.Initializer = "uniform",
        *,
        admit_after: int = 1,
        evict: Rule | Sequence[Rule] | None = None,
        trainable: bool = True,
    ) -> GrowingTable:
        """Return a new table without a number of rows: an id gets a row when a lookup in training first sees it.

        In a Keras model, use ``GrowingEmbedding`` instead.

        Example:
            >>> table = strategy.growing_table("items", 64, evict=LeastFrequent(max_rows=1_000_000))
            >>> rows = strategy.lookup(table, ["book-17", "book-3"])

        Args:
            name: a unique name, the same on all ranks.
            dim: the width of a row.
            initializer: a Keras initializer that does not depend on the number of rows, or its name.
            admit_after: the number of steps in which an id must be seen to get a row; until then its row is zeros.
            evict: ``OlderThan``, ``LeastFrequent``, or a list of them. Default: ids are never evicted.
            trainable: whether gradient tapes watch the table automatically.
        """
        self._check_name(name)
        made = make_growing_table(
            name,
            dim,
            size=self.world_size(),
            rank=self.rank(),
            initializer=initializer,
            admit_after=admit_after,
            evict=evict,
            seed=self.seed,
            trainable=trainable,
        )
        self._add(made)
        return made

    def lookup(
        self,
        table: ShardedTable | tf.Variable,
        ids: Ids,
        combiner: Combiner = None,
        *,
        weights: tf.Tensor | tf.RaggedTensor | None = None,
        training: bool = True,
    ) -> tf.Tensor | tf.RaggedTensor:
        """Return rows of a result of ``variable``, ``table`` or ``growing_table``; collective. See ``lookup.lookup``.

        Args:
            table: a result of ``variable``, ``table`` or ``growing_table``.
            ids: row numbers: a dense, ragged or sparse tensor. For a growing table: strings or any whole numbers.
            combiner: ``sum`` or ``mean`` of the rows of each bag; None: all rows.
            weights: weight of each id in its bag; needs a combiner.
            training: whether new ids get a row in a growing table. Otherwise the result for them is zeros.
        """
        wire = self._wires.get(table, self._defaults.wire) if isinstance(table, ShardedTable) else self._defaults.wire
        if isinstance(table, GrowingTable):
            return growing_lookup(table, ids, combiner, weights=weights, wire=wire, training=training)
        if isinstance(table, ShardedTable):
            return lookup(table, ids, combiner, weights=weights, wire=wire)
        rows, dim = table.shape
        return lookup(ShardedTable(table.name, rows, dim, even_rows(rows, 1), 0, table), ids, combiner, weights=weights)

    def embeddings(
        self,
        tables: Sequence[EmbeddingTable],
        *,
        batch_size: int = 1024,
        slots: int = 2,
        memory: int | None = None,
        joint: bool = True,
        name: str = "embeddings",
    ) -> EmbeddingCollection:
        """Return a layer of several tables, which a planner places and which share each exchange; collective.

        Example:
            >>> layer = strategy.embeddings([EmbeddingTable("users", 1000, 8), EmbeddingTable("items", 5000, 8)])
            >>> print(layer.plan.text())
            >>> found = layer({"users": tf.constant([3, 1]), "items": tf.constant([7, 7])})  # two tensors [2, 8]

        Args:
            tables: the tables; one with a ``placement`` keeps it.
            batch_size: the expected number of examples of a rank's batch, for the planner.
            slots: the number of the optimizer's slots, for the planner: 0 for SGD, 1 for Adagrad, 2 for Adam.
            memory: maximum bytes of the tables and slots of a rank; default: no limit.
            joint: whether tables of the same width share each exchange; False: one exchange for each table.
            name: a unique name of the layer.
        """
        wire, small = self._defaults.wire, self._defaults.shard_above
        options = PlanOptions(batch_size, slots, memory, small, wire)
        plan = make_plan(tables, self.world_size(), options)
        taken = {table.name for table in self.tables}
        if doubled := [one.name for one in tables if one.name in taken]:
            raise InputError(f"there is a table {doubled[0]!r} already", fix="give it another name")
        layer = EmbeddingCollection(plan, self.rank(), seed=self.seed, wire=wire, joint=joint, name=name)
        self.tables.extend(layer.tables)
        logger.info("%s: placement of %d tables\n%s", name, len(tables), plan.text())
        return layer

    def _table_of_layer(
        self, name: str, rows: int, dim: int, initializer: Initializer, trainable: bool
    ) -> ShardedTable:
        """Return the table of a layer, under a unique name."""
        return self.table(self._free_name(name), rows, dim, initializer, trainable=trainable)

    def _growing_table_of_layer(self, layer: GrowingEmbedding) -> GrowingTable:
        """Return the growing table of a layer, under a unique name."""
        return self.growing_table(
            self._free_name(layer.name),
            layer.output_dim,
            layer.embeddings_initializer,
            admit_after=layer.admit_after,
            evict=layer.rules,
            trainable=layer.trainable,
        )

    def _is_large(self, rows: int, dim: int) -> bool:
        """Return whether an embedding scope shards a table of this size by default."""
        return _large(rows, dim, self._defaults)

    def _add(self, table: ShardedTable) -> None:
        self.tables.append(table)
        self._wires[table] = (self._embedding_scope or self._defaults).wire

    def _check_name(self, name: str) -> None:
        if any(table.name == name for table in self.tables):
            raise InputError(f"there is a table {name!r} already", fix="give it another name")

    def _free_name(self, name: str) -> str:
        taken = {table.name for table in self.tables}
        free, number = name, 1
        while free in taken:
            free, number = f"{name}_{number}", number + 1
        return free


def _large(rows: int, dim: int, scope: _EmbeddingScope) -> bool:
    return 4 * rows * dim > scope.shard_above
