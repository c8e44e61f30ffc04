import functools
import hashlib
import inspect
import logging
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from xmc_tf.collective.batches import NOT_WEIGHTED, current_batch
from xmc_tf.collective.blocks import patched
from xmc_tf.collective.fitting.empty_batches import empty_batches_allowed
from xmc_tf.collective.fitting.losses import added_losses, patch_losses_for_ranks
from xmc_tf.collective.fitting.metrics import metrics_of_all_ranks, results_in
from xmc_tf.collective.fitting.steps import same_steps_on_all_ranks
from xmc_tf.collective.optimizers.keras_optimizer import CollectiveOptimizer
from xmc_tf.collective.tables.keras_embedding import ShardedEmbedding
from xmc_tf.collective.tables.lookup import ids_out_of_range_in_one_line
from xmc_tf.collective.tables.table import ShardedTable, table_of
from xmc_tf.collective.tables.table_variable import name_of, own_rows, save_on_rank_0
from xmc_tf.common.errors import InputError
from xmc_tf.ranks.communicator import Communicator

log = logging.getLogger(__name__)
_Base: Any = object  # a base class of keras.Model
_warned: "weakref.WeakSet[keras.Model]" = weakref.WeakSet()


def check_replicas_equal(variables: Sequence[tf.Variable], communicator: Communicator) -> int:
    """Check that replicated variables are bitwise equal on all ranks. Return their number. All ranks must call it."""
    replicated = [variable for variable in variables if table_of(variable) is None]
    mine = []
    for variable in replicated:
        # A digest of the bytes, for which -0.0 and 0.0 differ and a NaN equals itself.
        values = np.ascontiguousarray(variable.numpy()).view(np.uint8).reshape(-1)
        digest = hashlib.blake2b(values.data, digest_size=16).hexdigest()
        mine.append((name_of(variable), tuple(variable.shape), digest))
    every = communicator.allgather(mine)
    if any(len(one) != len(every[0]) for one in every):
        raise InputError(
            "ranks have different numbers of replicated variables",
            received=", ".join(f"{len(one)} on rank {rank}" for rank, one in enumerate(every)),
            fix="build the same model on all ranks",
        )
    differing = []
    for number, (name, shape, digest) in enumerate(every[0]):
        # Names may differ: Keras numbers layers, and a rank may have made other models before.
        others = [rank for rank, one in enumerate(every) if one[number][1:] != (shape, digest)]
        if others:
            differing.append(f"{name} {shape}: on ranks {others}")
    if differing:
        raise InputError(
            f"{len(differing)} of {len(replicated)} replicated variables differ from rank 0's",
            received="\n            ".join(differing[:10]),
            fix="create the model inside strategy.scope(), update it only with strategy.optimizer(...), and adapt its "
            "layers to the same data on all ranks",
        )
    return len(replicated)


# Callbacks that remember weights and set them again, or draw them: those of this rank, so that none has a whole table.
_OF_OWN_ROWS = (keras.callbacks.EarlyStopping, keras.callbacks.TensorBoard)


def prepare_models(communicator: Communicator) -> None:
    """Make the methods of all Keras models work over several ranks for the rest of the process."""
    if communicator.size == 1 or CollectiveFit in keras.Model.__bases__:
        return
    CollectiveFit.communicator = communicator
    patch_losses_for_ranks()
    # Behind the classes of users and before Keras's own, also for models that exist already. Subclasses of each model
    # would not do: Keras replaces the bases of a class when it makes a functional model of it, and refuses to compile
    # what it loads as a class with a method ``compile`` of its own.
    keras.Model.__bases__ = (CollectiveFit, *keras.Model.__bases__)
    for name, around in (("save", _save), ("save_weights", _save), ("export", _export)):  # which the class itself has
        setattr(keras.Model, name, _wrapped(getattr(keras.Model, name), around))


def _wrapped(method: Callable[..., Any], around: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that calls ``around`` with ``method``, and shows the signature and help of ``method``."""

    @functools.wraps(method)
    def call(self: keras.Model, *args: Any, **options: Any) -> Any:
        return around(self, method, *args, **options)

    return call


@contextmanager
def _errors_in_one_line() -> Iterator[None]:
    """Replace TensorFlow's long errors about ids, and about a loss that is not weighted, which all ranks raise."""
    try:
        with ids_out_of_range_in_one_line():
            yield
    except tf.errors.InvalidArgumentError as error:
        if NOT_WEIGHTED not in str(error):
            raise
    else:
        return
    short = InputError(
        NOT_WEIGHTED,
        expected="the gradients of strategy.scale_loss(loss), where loss is the mean over the rank's examples",
        fix="in train_step, write `loss = strategy.scale_loss(loss)` before tape.gradient(loss, ...)",
    )
    short.on_all_ranks = True
    raise short


class CollectiveFit(_Base):
    """Methods of ``keras.Model`` over several ranks. ``prepare_models`` makes it the first base class of all models."""

    communicator: Communicator

    def fit(self, *args: Any, **options: Any) -> Any:
        with _errors_in_one_line():
            if not _over_ranks(self):
                if getattr(self, "optimizer", None) is not None:
                    _report_local(CollectiveFit.communicator, self)
                return super().fit(*args, **options)
            given = inspect.signature(super().fit).bind(*args, **options).arguments
            callbacks = given.get("callbacks") or []
            if isinstance(callbacks, keras.callbacks.CallbackList):
                several = callbacks.callbacks
            else:
                given["callbacks"] = several = list(keras.tree.flatten(callbacks))
            stops_on_nan = any(isinstance(one, keras.callbacks.TerminateOnNaN) for one in several)
            for one in several:
                for name in ("on_train_begin", "on_epoch_end", "on_train_end") if isinstance(one, _OF_OWN_ROWS) else ():
                    setattr(one, name, own_rows()(getattr(one, name)))
                if isinstance(one, keras.callbacks.BackupAndRestore) and CollectiveFit.communicator.rank > 0:
                    # Rank 0 makes the folder, writes and removes; the others send it their rows.
                    one._save_model = functools.partial(self.save_weights, "of_rank_0.weights.h5")
                    one.on_train_end = lambda logs=None: None
            several.insert(0, _SameOnAllRanks(CollectiveFit.communicator, stops_on_nan))
            with same_steps_on_all_ranks(CollectiveFit.communicator):
                return super().fit(**given)

    def evaluate(self, *args: Any, **options: Any) -> Any:
        with _errors_in_one_line(), same_steps_on_all_ranks(CollectiveFit.communicator if _over_ranks(self) else None):
            return super().evaluate(*args, **options)

    def predict(self, *args: Any, **options: Any) -> Any:
        """Predict on all ranks if the model has sharded tables. A rank can predict alone with any other model."""
        ranks = CollectiveFit.communicator if sharded_tables(self) else None
        with _errors_in_one_line(), same_steps_on_all_ranks(ranks):
            return super().predict(*args, **options)

    def train_on_batch(self, *args: Any, **options: Any) -> Any:
        return self._on_batch(functools.partial(super().train_on_batch, *args, **options))

    def test_on_batch(self, *args: Any, **options: Any) -> Any:
        return self._on_batch(functools.partial(super().test_on_batch, *args, **options))

    def _on_batch(self, method: Any) -> Any:
        """Train or test on a batch. Return the metrics over all ranks if the model was compiled for them."""
        with _errors_in_one_line(), empty_batches_allowed():
            if not _over_ranks(self):
                return method()
            given = inspect.signature(method.func).bind(*method.args, **method.keywords).arguments
            logs = self._get_metrics_result_or_logs(method.func(**{**given, "return_dict": True}))
        logs = {name: float(value) for name, value in logs.items()}
        return logs if given.get("return_dict") else self._flatten_metrics_in_order(logs)

    def _get_metrics_result_or_logs(self, logs: Any) -> Any:
        """Return the metrics over all ranks, and other values of a ``train_step`` as its last step returned them."""
        if not _over_ranks(self):
            return super()._get_metrics_result_or_logs(logs)
        with metrics_of_all_ranks(self, CollectiveFit.communicator):
            found = super()._get_metrics_result_or_logs(logs)
            return {**logs, **results_in(logs, self)} if found is logs and isinstance(logs, dict) else found

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        batch, compute = current_batch(), functools.partial(super().compute_loss, x, y, y_pred, sample_weight, training)
        if batch is None:
            return compute()
        with patched(batch, adds_losses=True):
            batch.means.append(loss := compute())
        return loss

    @property
    def losses(self) -> list[tf.Tensor]:
        """The losses that layers have added, as Keras's ``compute_loss`` adds them up."""
        found, batch = super().losses, current_batch()
        return added_losses(self, found, batch) if batch is not None and batch.adds_losses else found

    def get_compile_config(self) -> dict[str, Any]:
        config = super().get_compile_config()
        if config and _over_ranks(self) and "optimizer" not in config:
            # To write a .h5 file, Keras removes the optimizer, on rank 0 alone.
            config["optimizer"] = keras.saving.serialize_keras_object(self.optimizer.of_user)
        return config


def _save(model: keras.Model, method: Callable[..., Any], *args: Any, **options: Any) -> Any:
    tables, save = sharded_tables(model), functools.partial(method, model, *args, **options)
    with _errors_in_one_line():
        return save_on_rank_0(CollectiveFit.communicator, tables, save) if tables or _over_ranks(model) else save()


def _export(model: keras.Model, method: Callable[..., Any], *args: Any, **options: Any) -> Any:
    if sharded_tables(model):
        raise InputError(
            f"model.export cannot export model {model.name!r}, which has sharded tables",
            expected="an export that holds the rows of all ranks",
            fix="strategy.export_saved_model(folder, model)",
        )
    return method(model, *args, **options)


def sharded_tables(model: keras.Model) -> list[ShardedTable]:
    """Return the sharded tables of a model in the order of its variables."""
    tables = [table_of(variable) for variable in model.variables]
    return [table for table in dict.fromkeys(tables) if table is not None and table.size > 1]


def _over_ranks(model: keras.Model) -> bool:
    return isinstance(getattr(model, "optimizer", None), CollectiveOptimizer)


def _report_local(communicator: Communicator, model: keras.Model) -> None:
    embeddings = (one for one in model._flatten_layers() if isinstance(one, ShardedEmbedding))
    if sharded_tables(model) or any(one.is_sharded for one in embeddings):
        raise InputError(
            f"model {model.name!r} has sharded embeddings, but was compiled outside strategy.scope()",
            expected="an optimizer over all ranks",
            received=type(model.optimizer).__name__,
            fix="move model.compile(...) into `with strategy.scope():`",
        )
    if communicator.rank == 0 and model not in _warned:
        _warned.add(model)
        log.warning(
            "model %r was compiled outside strategy.scope(): each of the %d ranks trains a model of its own. To train "
            "one model, move the model and model.compile(...) into `with strategy.scope():`",
            model.name,
            communicator.size,
        )


class _SameOnAllRanks(keras.callbacks.Callback):
    """A callback that compares replicas before and after the first batch, and the states of layers after each epoch. It
    stops all ranks if one sees a NaN.
    """

    def __init__(self, communicator: Communicator, stops_on_nan: bool) -> None:
        super().__init__()
        self._communicator, self._stops_on_nan, self._checked = communicator, stops_on_nan, False

    def on_train_begin(self, logs: dict | None = None) -> None:
        # Those that a layer was adapted to, or that a user has set.
        check_replicas_equal(self.model.non_trainable_weights, self._communicator)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        check_replicas_equal(self.model.non_trainable_weights, self._communicator)

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        if not self._checked:
            self._checked = True
            check_replicas_equal(self.model.weights, self._communicator)
        if not self._stops_on_nan:
            return
        finite = self._communicator.allgather(bool(np.isfinite((logs or {}).get("loss", 0.0))))
        if ranks := [rank for rank, one in enumerate(finite) if not one]:
            log.error("batch %d: the loss is not finite on ranks %s; all ranks stop", batch, ranks)
            self.model.stop_training = True
