import itertools
import logging
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import keras
import numpy as np
import tensorflow as tf

from xmc_tf.collective.batches import current_batch
from xmc_tf.collective.blocks import patched
from xmc_tf.collective.dynamic_tables.eviction import Rule
from xmc_tf.collective.dynamic_tables.keras_embedding import GrowingEmbedding, growing_lookup
from xmc_tf.collective.dynamic_tables.table import GrowingTable, make_growing_table
from xmc_tf.collective.embedding_collection.collection import EmbeddingCollection
from xmc_tf.collective.embedding_collection.planner import EmbeddingTable, PlanOptions, make_plan
from xmc_tf.collective.engines import operations
from xmc_tf.collective.engines.graph_order import in_plain_graph
from xmc_tf.collective.engines.operations import GatheredRows, gather_rows, start_engine
from xmc_tf.collective.fitting.compiling import check_keras, compiled_over_ranks
from xmc_tf.collective.fitting.models import check_replicas_equal, prepare_models
from xmc_tf.collective.graphs import (
    creator_in_graphs,
    from_rank_0,
    optimizers_over_ranks,
    sharded_get_variable,
    variable_of,
)
from xmc_tf.collective.heads.layers import table_of_all_rows, top_rows
from xmc_tf.collective.keras_2 import check_keras_3
from xmc_tf.collective.optimizers.gradients import Reduction
from xmc_tf.collective.optimizers.keras_optimizer import CollectiveOptimizer, LossScale, scale_of
from xmc_tf.collective.optimizers.row_wise.keras_forms import slots_of
from xmc_tf.collective.optimizers.row_wise.table_optimizer import TableOptimizer
from xmc_tf.collective.tables.bags import Combiner, Ids
from xmc_tf.collective.tables.initial_values import Initializer
from xmc_tf.collective.tables.keras_embedding import EmbeddingScope, shard_embeddings
from xmc_tf.collective.tables.lookup import lookup
from xmc_tf.collective.tables.row_exchange import WireFormat, check_format
from xmc_tf.collective.tables.table import ShardedTable, make_table, replicated_here
from xmc_tf.common.errors import InputError
from xmc_tf.ranks.choosing import choose_communicator
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.partition import Partition, even_rows
from xmc_tf.ranks.stalls.watch import outlast_stalls, watch_for_stalls

if TYPE_CHECKING:
    from xmc_tf.collective.estimator import Estimator
    from xmc_tf.collective.saved_model import Signature

logger = logging.getLogger(__name__)


class CollectiveStrategy:
    """Shard embeddings by rows over all ranks, and replicate all other variables.

    The same script runs as one process without Horovod, and on N ranks under ``horovodrun -np N``. Each rank reads its
    own part of the data. The loss of a step is the mean of the ranks' losses. If all ranks must call a method, they
    wait for each other there.

    Example:
        >>> strategy = CollectiveStrategy()
        >>> with strategy.scope():
        ...     with strategy.embedding_scope():
        ...         words = keras.layers.Embedding(10_000_000, 64)
        ...     model = keras.Sequential([words, keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(1)])
        ...     model.compile("adam", "mse")
        >>> model.fit(data.shard(strategy.world_size(), strategy.rank()))

    In a custom training loop, use ``strategy.optimizer(...)``.

    Args:
        communicator: connects the ranks. Default: detected from how the process was started.
        seed: the seed of the tables' initial values, which do not depend on the number of ranks.
        shard_above: a size in bytes. Larger tables are sharded, others are replicated.
        wire: the format in which rows are sent: fp32; fp16 or bf16, which halve the bytes at lower precision; or int8,
            which quarters them and uses one scale per row.
        exact: whether optimizers update all rows of sharded tables in each step, exactly as Keras does. By default,
            they update only the rows that a step looks up. This costs less and differs from Keras except in plain SGD.
        stall_timeout: the maximum number of seconds without progress in one collective. After that, the run is aborted
            with a report of what each rank is doing. Default: no abort, and one report after a minute.
    """

    def __init__(
        self,
        communicator: Communicator | None = None,
        *,
        seed: int = 0,
        shard_above: int = 2**20,
        wire: WireFormat = "fp32",
        exact: bool = False,
        stall_timeout: float | None = None,
    ) -> None:
        check_format(wire)
        check_keras()
        outlast_stalls(os.environ, stall_timeout)
        self.communicator = choose_communicator() if communicator is None else communicator
        self.seed, self.exact = seed, exact
        self.tables: list[ShardedTable] = []
        self._wires: dict[ShardedTable, WireFormat] = {}
        # The defaults, and the options of the current embedding scope, if any.
        self._shard_above, self._wire = shard_above, wire
        self._scope: tuple[int, WireFormat] | None = None
        if self.communicator.size > 1:
            start_engine(self.communicator)
            prepare_models(self.communicator)
            watch_for_stalls(self.communicator, stall_timeout)

    def world_size(self) -> int:
        """Return the number of ranks."""
        return self.communicator.size

    def rank(self) -> int:
        """Return the number of this rank."""
        return self.communicator.rank

    def local_rank(self) -> int:
        """Return the number of this rank on its host, for example to select a GPU."""
        return self.communicator.local_rank

    @contextmanager
    def scope(self) -> Iterator[Self]:
        """Copy variables created in the block from rank 0 to all ranks. Train models compiled in it on all ranks."""

        def same_everywhere(next_creator: Callable, **kwargs: Any) -> tf.Variable:
            if self.world_size() > 1 and in_plain_graph() and replicated_here():
                kwargs["initial_value"] = from_rank_0(kwargs["initial_value"], self.rank())
            variable = next_creator(**kwargs)
            # While a graph is traced, variables have no values yet; the seeds of their initializers are equal.
            if self.world_size() > 1 and tf.executing_eagerly() and replicated_here():
                is_number = variable.dtype.is_floating or variable.dtype.is_integer
                if is_number and variable.shape.is_fully_defined():
                    operations.broadcast_variables([variable])
            return variable

        with (
            self._same_seeds(),
            tf.variable_creator_scope(same_everywhere),
            creator_in_graphs(same_everywhere),
            optimizers_over_ranks(self.communicator),
            compiled_over_ranks(self.communicator, self._optimizer_of, partial(_is_large, self._shard_above)),
        ):
            yield self

    @contextmanager
    def _same_seeds(self) -> Iterator[None]:
        """Make Keras draw the same initializer seeds as on rank 0, also for layers that it builds after the block."""
        before = random.getstate()
        version, numbers, gauss = self.communicator.broadcast(before)
        random.setstate((version, tuple(numbers), gauss))
        try:
            yield
        finally:
            if self.rank() > 0:
                random.setstate(before)

    @contextmanager
    def embedding_scope(self, shard_above: int | None = None, wire: WireFormat | None = None) -> Iterator[Self]:
        """Shard large embeddings by rows if they are created in the block by Keras' Embedding or by ``variable``.

        Args:
            shard_above: a size in bytes. Larger embeddings are sharded; 0 shards all. Default: the strategy's setting.
            wire: the format in which rows are sent. Default: the strategy's setting.
        """
        above = self._shard_above if shard_above is None else shard_above
        wire = self._wire if wire is None else wire
        check_format(wire)
        wants = partial(_is_large, above)

        def make(name: str, rows: int, dim: int, initializer: Initializer, trainable: bool) -> ShardedTable:
            return self.table(self._free_name(name), rows, dim, initializer, trainable=trainable)

        def make_growing(layer: GrowingEmbedding) -> GrowingTable:
            name, initializer = self._free_name(layer.name), layer.embeddings_initializer
            options: dict[str, Any] = {"admit_after": layer.admit_after, "evict": layer.rules}
            return self.growing_table(name, layer.output_dim, initializer, trainable=layer.trainable, **options)

        scope = EmbeddingScope(make, wants, wire, make_growing)
        with patched(self, _scope=(above, wire)), shard_embeddings(scope), sharded_get_variable(self.table, wants):
            yield self

    def variable(
        self,
        name: str,
        shape: Sequence[int],
        initializer: Initializer = "uniform",
        trainable: bool = True,
    ) -> ShardedTable | tf.Variable:
        """Return a sharded table for a large matrix inside ``embedding_scope()``, and otherwise a replicated variable.

        Example:
            >>> with strategy.embedding_scope(shard_above=0):
            ...     table = strategy.variable("var_1", shape=(1000, 3), initializer="ones")
            >>> rows = strategy.lookup(table, [0, 1, 2, 5, 6, 7])

        Args:
            name: the name of the variable, by which checkpoints identify it.
            shape: the shape of the variable.
            initializer: the name of a Keras initializer, a matrix, or a function from row numbers to rows.
            trainable: whether optimizers update the variable.
        """
        if self._scope is not None and len(shape) == 2 and _is_large(self._scope[0], *shape):
            return self.table(name, shape[0], shape[1], initializer, trainable=trainable)
        # The same values as those of a table, so that shard_above does not change the training.
        rows, dim = (shape[0], shape[1]) if len(shape) == 2 else (1, int(tf.TensorShape(shape).num_elements()))
        values = make_table(name, rows, dim, initializer=initializer, seed=self.seed).variable
        values = values.initial_value if in_plain_graph() else values
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
        """Return a new table, sharded by rows whatever its size.

        Args:
            name: a unique name, the same on all ranks.
            rows: the number of rows of the whole table.
            dim: the width of a row.
            initializer: the name of a Keras initializer, a matrix, or a function from row numbers to rows.
            partition: the range of rows of each rank. Default: ranges of equal size.
            trainable: whether gradient tapes watch the table automatically.
        """
        if not in_plain_graph():
            self._check_name(name)
        size, rank = self.world_size(), self.rank()
        options: dict[str, Any] = {"seed": self.seed, "trainable": trainable, "each_id": self.exact}
        made = make_table(
            name, rows, dim, size=size, rank=rank, partition=partition, initializer=initializer, **options
        )
        if in_plain_graph():  # its tables belong to a session, and may have the names of another graph's tables
            variable_of(made)
            return made
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
        """Return a new table without a fixed number of rows: an id gets a row when a lookup in training first sees it.

        In a Keras model, use ``GrowingEmbedding`` instead.

        Example:
            >>> table = strategy.growing_table("items", 64, evict=LeastFrequent(max_rows=1_000_000))
            >>> rows = strategy.lookup(table, ["book-17", "book-3"])

        Args:
            name: a unique name, the same on all ranks.
            dim: the width of a row.
            initializer: a Keras initializer that does not depend on the number of rows, or its name.
            admit_after: the number of steps in which an id must be seen to get a row. Until then, it gives zeros.
            evict: ``OlderThan``, ``LeastFrequent``, or a list of them. Default: ids are never evicted.
            trainable: whether gradient tapes watch the table automatically.
        """
        self._check_name(name)
        if self.exact:
            raise InputError(
                f"growing table {name!r} cannot be used with CollectiveStrategy(exact=True)",
                expected="tables with a fixed number of rows, which Keras has too",
                fix="leave out exact=True",
            )
        options: dict[str, Any] = {"admit_after": admit_after, "evict": evict, "trainable": trainable}
        size, rank = self.world_size(), self.rank()
        made = make_growing_table(name, dim, size=size, rank=rank, initializer=initializer, seed=self.seed, **options)
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
        """Return the rows of ids from a result of ``variable``, ``table`` or ``growing_table``. All ranks must call it.

        Args:
            table: a result of ``variable``, ``table`` or ``growing_table``.
            ids: row numbers, as a dense, ragged or sparse tensor. For a growing table: strings or any whole numbers.
            combiner: how to combine the rows of each bag, the last dimension of the ids: "sum" or "mean". None: no
                combination.
            weights: the weight of each id in its bag. This needs a combiner.
            training: whether new ids get a row in a growing table. If not, they give zeros.
        """
        if not isinstance(table, ShardedTable):
            rows, dim = table.shape
            table = ShardedTable(table.name, rows, dim, even_rows(rows, 1), 0, table)
        wire = self._wires.get(table, self._wire)
        if isinstance(table, GrowingTable):
            return growing_lookup(table, ids, combiner, weights=weights, wire=wire, training=training)
        return lookup(table, ids, combiner, weights=weights, wire=wire)

    def gather(self, vectors: tf.Tensor) -> GatheredRows:
        """Return the rows of all ranks' batches, and the positions of this rank's rows. All ranks must call it.

        Use it for losses among the examples of a batch, such as those with in-batch negatives. It is differentiable.

        Example:
            >>> users, items = tf.eye(8), tf.eye(8)
            >>> candidates, positions = strategy.gather(items)
            >>> scores = tf.matmul(users, candidates, transpose_b=True)
            >>> loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)(positions, scores)

        Args:
            vectors: this rank's rows. Ranks may have different numbers of rows.
        """
        if (batch := current_batch()) is not None:
            batch.gathers += 1
        return gather_rows(vectors, self.world_size(), self.rank(), "xmc_tf/batch/rows")

    def scale_loss(self, loss: tf.Tensor) -> tf.Tensor:
        """Return the loss whose gradients a ``train_step`` of your own computes: the loss times this rank's weight.

        Ranks whose batches have more examples weigh more. Outside of ``fit``, it returns the loss, so that one
        ``train_step`` serves plain Keras too. ``self.optimizer.scale_loss(loss)`` does the same.

        Example:
            >>> with tf.GradientTape() as tape:
            ...     loss = strategy.scale_loss(tf.reduce_mean(tf.ones([8])))

        Args:
            loss: the mean of the losses of this rank's examples.
        """
        batch = current_batch()
        return loss if batch is None else batch.scale_loss(loss)

    def top_k(
        self, layer: keras.layers.Embedding | ShardedTable | tf.Variable, queries: tf.Tensor, k: int = 10
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the exact k best rows of an embedding for each query by dot product. All ranks must call it.

        Each rank passes its own queries, or none. In a Keras model, use ``TopK``, or ``TiedHead`` for all scores.

        Example:
            >>> movies = keras.layers.Embedding(10_000, 64)
            >>> scores, ids = strategy.top_k(movies, tf.zeros([2, 64]), k=10)

        Args:
            layer: a Keras Embedding, sharded or not, or a result of ``variable`` or ``table``.
            queries: the queries, ``[..., width of a row]``.
            k: the number of rows to return for each query.

        Returns:
            The scores in descending order, and the ids. Both are ``[..., k]``, as from ``tf.math.top_k``.
        """
        table = table_of_all_rows(layer)
        return top_rows(table, tf.convert_to_tensor(queries), k, self._wires.get(table, self._wire))

    def embeddings(
        self,
        tables: Sequence[EmbeddingTable],
        *,
        batch_size: int = 1024,
        slots: int | str | keras.optimizers.Optimizer | TableOptimizer = "adam",
        memory: int | None = None,
        joint: bool = True,
        name: str = "embeddings",
    ) -> EmbeddingCollection:
        """Return a layer of several tables that share exchanges. A planner places the tables. All ranks must call it.

        Example:
            >>> layer = strategy.embeddings([EmbeddingTable("users", 1000, 8), EmbeddingTable("items", 5000, 8)])
            >>> print(layer.plan.text())
            >>> found = layer({"users": tf.constant([3, 1]), "items": tf.constant([7, 7])})  # two tensors [2, 8]

        Args:
            tables: the tables. The planner leaves a table's own ``placement`` as it is.
            batch_size: the expected number of examples in a rank's batch, used by the planner.
            slots: the optimizer that will train the tables, or its number of slots, used by the planner.
            memory: the maximum bytes of tables and slots per rank. Default: no limit.
            joint: whether tables of the same width share each exchange. If not, each table has its own exchange.
            name: a unique name of the layer.
        """
        options = PlanOptions(batch_size, slots_of(slots), memory, self._shard_above, self._wire)
        plan = make_plan(tables, self.world_size(), options)
        for one in tables:
            self._check_name(one.name)
        layer = EmbeddingCollection(
            plan, self.rank(), seed=self.seed, wire=self._wire, joint=joint, name=name, each_id=self.exact
        )
        self.tables.extend(layer.tables)
        logger.info("%s: placement of %d tables\n%s", name, len(tables), plan.text())
        return layer

    def optimizer(
        self,
        optimizer: str | keras.optimizers.Optimizer = "adam",
        *,
        table_optimizer: TableOptimizer | None = None,
        reduction: Reduction = "mean",
        accumulate: int = 1,
        loss_scale: float | Literal["dynamic"] | LossScale | None = None,
    ) -> CollectiveOptimizer:
        """Return a Keras optimizer that trains sharded and replicated variables on all ranks.

        The learning rate is not scaled by the number of ranks.

        Args:
            optimizer: a Keras optimizer or its name.
            table_optimizer: the optimizer of sharded tables. Default: the row-wise form of ``optimizer``.
            reduction: "mean" if each rank's loss is the mean over its batch, "sum" if the losses of the ranks add up.
            accumulate: the number of batches per step.
            loss_scale: for fp16: "dynamic", or a constant. Default: no scaling.
        """
        check_keras_3("optimizer", optimizer)
        if loss_scale == "dynamic":
            loss_scale = LossScale()
        elif isinstance(loss_scale, float | int):
            loss_scale = LossScale(float(loss_scale), growth_steps=None)
        inner, size = keras.optimizers.get(optimizer), self.world_size()
        options: dict[str, Any] = {"table_optimizer": table_optimizer, "loss_scale": loss_scale, "exact": self.exact}
        return CollectiveOptimizer(inner, size, reduction=reduction, accumulate=accumulate, **options)

    def estimator(
        self,
        model: keras.Model | Callable[[], keras.Model] | None = None,
        model_dir: str | Path | None = None,
        **options: Any,
    ) -> "Estimator":
        """Return an ``Estimator`` that trains, evaluates, checkpoints and exports a compiled Keras model.

        Example:
            >>> estimator = strategy.estimator(make_model, model_dir="run")
            >>> estimator.train_and_evaluate(TrainSpec(ratings, max_steps=5000), EvalSpec(held_out))

        Args:
            model: a compiled Keras model, or a function that returns one.
            model_dir: the folder of checkpoints and logs, on a disk that all ranks share.
            **options: further arguments of ``Estimator``: ``save_every`` (steps between checkpoints) and ``callbacks``.
        """
        from xmc_tf.collective.estimator import Estimator, check_no_model_fn

        check_no_model_fn(options)
        if model is None or model_dir is None:
            raise InputError("strategy.estimator: no model or model_dir", expected="a model, and a folder as model_dir")
        return Estimator(self, model, model_dir, **options)

    def export_saved_model(
        self, folder: str | Path, model: "keras.Model | Mapping[str, Signature]", *, track: Sequence[Any] = ()
    ) -> Path:
        """Write a SavedModel that plain TensorFlow loads. All ranks must call it.

        Args:
            folder: the folder of the SavedModel. For TensorFlow Serving, its name is the version.
            model: a Keras model, or a dictionary of functions by signature name.
            track: further objects that own variables or lookup tables of the functions.
        """
        from xmc_tf.collective.saved_model import export_saved_model

        return export_saved_model(folder, model, self.tables, self.communicator, track=track)

    def check_replicas(self, variables: Sequence[tf.Variable]) -> int:
        """Check that replicated variables are bitwise equal on all ranks, and return how many there are.

        All ranks must call it.

        Args:
            variables: the variables to compare.
        """
        return check_replicas_equal(variables, self.communicator)

    def _optimizer_of(self, model: keras.Model, passed: CollectiveOptimizer | None) -> CollectiveOptimizer:
        """Return the collective form of the optimizer with which a model was compiled."""
        if passed is None:
            return self.optimizer(model.optimizer)
        passed.of_user = model.optimizer
        if passed.loss_scale is None:
            passed.loss_scale = scale_of(model.optimizer)
        return passed

    def _add(self, table: ShardedTable) -> None:
        self.tables.append(table)
        self._wires[table] = self._wire if self._scope is None else self._scope[1]

    def _check_name(self, name: str) -> None:
        if any(table.name == name for table in self.tables):
            raise InputError(f"there is already a table {name!r}", fix="give it another name")

    def _free_name(self, name: str) -> str:
        taken = {table.name for table in self.tables}
        names = (f"{name}_{number}" if number else name for number in itertools.count())
        return next(one for one in names if one not in taken)


def _is_large(shard_above: int, rows: Any, dim: Any) -> bool:
    """Return whether a matrix has more bytes. Keras refuses an embedding whose sizes are no whole numbers."""
    are_whole = all(isinstance(size, int | np.integer) for size in (rows, dim))
    return are_whole and bool(4 * rows * dim > shard_above)
