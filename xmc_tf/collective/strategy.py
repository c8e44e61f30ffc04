"""``CollectiveStrategy``: distribute a training script over many ranks with three changed lines."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import keras
import tensorflow as tf

from xmc_tf.collective.engines import operations
from xmc_tf.collective.engines.choosing import start_engine
from xmc_tf.collective.fitting.compiling import check_keras, compiled_over_ranks
from xmc_tf.collective.fitting.models import prepare_models
from xmc_tf.collective.optimizers.gradients import Reduction
from xmc_tf.collective.optimizers.keras_optimizer import CollectiveOptimizer
from xmc_tf.collective.optimizers.loss_scale import LossScale
from xmc_tf.collective.optimizers.row_wise import TableOptimizer
from xmc_tf.collective.replicas import check_replicas_equal
from xmc_tf.collective.table_creation import TableCreation
from xmc_tf.collective.tables.table import replicated_here
from xmc_tf.collective.tables.wire import WireFormat
from xmc_tf.ranks.choosing import choose_communicator
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.stalls.settings import watch_for_stalls

if TYPE_CHECKING:
    from xmc_tf.collective.estimator import Estimator
    from xmc_tf.collective.saved_model import Signature


class CollectiveStrategy(TableCreation):
    """Shard embeddings by rows over all ranks, and replicate all other variables.

    The same script runs as one process without Horovod, and on N ranks under ``horovodrun -np N``. Each rank reads its
    own part of the data. The loss of a step is the mean of the ranks' losses.

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
        communicator: the ranks; default: by how the process was started.
        seed: the seed of the tables' initial values, which do not depend on the number of ranks.
        shard_above: tables with more bytes are sharded, smaller ones are replicated.
        wire: the format in which rows are sent: fp32; fp16 or bf16, which halve the bytes at less precision; or int8,
            which quarters them, with one scale per row.
        stall_timeout: maximum seconds without progress in one collective, after which the run is aborted with a
            report of what each rank does. Default: no abort, and one report after a minute. See
            ``stalls.settings.watch_for_stalls``.
    """

    def __init__(
        self,
        communicator: Communicator | None = None,
        *,
        seed: int = 0,
        shard_above: int = 2**20,
        wire: WireFormat = "fp32",
        stall_timeout: float | None = None,
    ) -> None:
        super().__init__(choose_communicator() if communicator is None else communicator, seed, shard_above, wire)
        check_keras()
        if self.communicator.size > 1:
            start_engine(self.communicator)
            prepare_models(self.communicator)
            watch_for_stalls(self.communicator, stall_timeout)

    def local_rank(self) -> int:
        """Return the number of this rank on its host, which selects the GPU."""
        return self.communicator.local_rank

    @contextmanager
    def scope(self) -> Iterator["CollectiveStrategy"]:
        """Replicate variables created inside, with rank 0's values; models compiled inside train on all ranks."""

        def same_everywhere(next_creator: Callable, **kwargs: Any) -> tf.Variable:
            variable = next_creator(**kwargs)
            # While a graph is traced, variables have no values yet; the seeds of their initializers are equal.
            if self.world_size() > 1 and tf.executing_eagerly() and replicated_here() and _is_broadcastable(variable):
                operations.broadcast_variables([variable])
            return variable

        with (
            self._same_seeds(),
            tf.variable_creator_scope(same_everywhere),
            compiled_over_ranks(self.communicator, self._optimizer_of, self._is_large),
        ):
            yield self

    @contextmanager
    def _same_seeds(self) -> Iterator[None]:
        """Let Keras draw the seeds of initializers as on rank 0, for layers that it builds after the block."""
        before = random.getstate()
        version, numbers, gauss = self.communicator.broadcast(before)
        if self.rank() == 0:
            yield
            return
        random.setstate((version, tuple(numbers), gauss))
        try:
            yield
        finally:
            random.setstate(before)

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

        The learning rate is not scaled by the number of ranks. See ``CollectiveOptimizer``.

        Args:
            optimizer: a Keras optimizer or its name.
            table_optimizer: the optimizer of sharded tables; default: the row-wise form of ``optimizer``.
            reduction: "mean" if each rank's loss is the mean over its batch, "sum" if the ranks' losses add up.
            accumulate: the number of batches in a step.
            loss_scale: for fp16: "dynamic", or a constant. Default: none.
        """
        inner = optimizer if type(optimizer).__module__.startswith("tf_keras") else keras.optimizers.get(optimizer)
        if loss_scale == "dynamic":
            loss_scale = LossScale()
        elif isinstance(loss_scale, float | int):
            loss_scale = LossScale(float(loss_scale), growth_steps=None)
        return CollectiveOptimizer(
            inner,
            self.world_size(),
            table_optimizer=table_optimizer,
            reduction=reduction,
            accumulate=accumulate,
            loss_scale=loss_scale,
        )

    def estimator(
        self, model: keras.Model | Callable[[], keras.Model], model_dir: str | Path, **options: Any
    ) -> "Estimator":
        """Return an ``Estimator``, which trains, evaluates, checkpoints and exports a compiled Keras model.

        Example:
            >>> estimator = strategy.estimator(make_model, model_dir="run")
            >>> estimator.train_and_evaluate(TrainSpec(ratings, max_steps=5000), EvalSpec(held_out))

        Args:
            model: a compiled Keras model, or a function that returns one.
            model_dir: folder of checkpoints and logs, on a disk that all ranks share.
            **options: further arguments of ``Estimator``.
        """
        from xmc_tf.collective.estimator import Estimator

        return Estimator(self, model, model_dir, **options)

    def export_saved_model(
        self, folder: str | Path, model: "keras.Model | Mapping[str, Signature]", *, track: Sequence[Any] = ()
    ) -> Path:
        """Write a SavedModel that plain TensorFlow loads; collective. See ``saved_model.export_saved_model``.

        Args:
            folder: folder of the SavedModel; for TensorFlow Serving, its name is the version.
            model: a Keras model, or functions by signature name.
            track: further objects whose variables the functions use.
        """
        from xmc_tf.collective.saved_model import export_saved_model

        return export_saved_model(folder, model, self.tables, self.communicator, track=track)

    def check_replicas(self, variables: Sequence[tf.Variable]) -> int:
        """Check that replicated variables are bitwise equal on all ranks; see ``check_replicas_equal``.

        Args:
            variables: the variables to compare.
        """
        return check_replicas_equal(variables, self.communicator)

    def _optimizer_of(self, model: keras.Model, passed: CollectiveOptimizer | None) -> CollectiveOptimizer:
        """Return the collective form of the optimizer that a model was compiled with."""
        given, scale = model.optimizer, None
        if isinstance(given, keras.mixed_precision.LossScaleOptimizer):  # Keras adds it under mixed_float16
            scale = LossScale(float(given.initial_scale), given.dynamic_growth_steps)
            given = given.inner_optimizer
        if passed is None:
            return self.optimizer(given, loss_scale=scale)
        if passed.loss_scale is None:
            passed.loss_scale = scale
        return passed


def _is_broadcastable(variable: tf.Variable) -> bool:
    """Return whether the variable has numbers and a fixed shape."""
    return (variable.dtype.is_floating or variable.dtype.is_integer) and variable.shape.is_fully_defined()
