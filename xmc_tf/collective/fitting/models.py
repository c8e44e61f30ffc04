import functools
import hashlib
import inspect
import logging
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, TypeAlias

import keras
import numpy as np
import tensorflow as tf

from xmc_tf.collective.batches import NOT_WEIGHTED
from xmc_tf.collective.blocks import patched
from xmc_tf.collective.fitting.empty_batches import allow_empty_batches
from xmc_tf.collective.fitting.losses import patch_losses_for_ranks
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
Call: TypeAlias = functools.partial[Any]  # a method with its model and arguments

_prepared: Communicator | None = None
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


# The methods of callbacks that remember weights and set them again, or draw them.
_OF_OWN_ROWS = {
    keras.callbacks.EarlyStopping: ("on_train_begin", "on_epoch_end", "on_train_end"),
    keras.callbacks.TensorBoard: ("_log_weights",),
}


def _save_backup(callback: keras.callbacks.BackupAndRestore) -> None:
    callback.model.save_weights(callback._weights_path, overwrite=True)


def _with_own_rows(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method so that it copies and sets only this rank's rows. No rank then holds a whole table."""

    @functools.wraps(method)
    def of_own_rows(*args: Any, **kwargs: Any) -> Any:
        with own_rows():
            return method(*args, **kwargs)

    return of_own_rows


def prepare_models(communicator: Communicator) -> None:
    """Make the methods of all Keras models work over several ranks for the rest of the process."""
    global _prepared
    if _prepared is not None or communicator.size == 1:
        return
    _prepared = communicator
    patch_losses_for_ranks()
    allow_empty_batches()
    _wrap("fit", _fit)
    _wrap("evaluate", _evaluate)
    _wrap("predict", _predict)
    for name in ("train_on_batch", "test_on_batch"):
        _wrap(name, _on_batch)
    for name in ("save", "save_weights"):
        _wrap(name, _save)
    _wrap("export", _export)
    _wrap("_get_metrics_result_or_logs", _results)


def _wrap(name: str, around: Callable[[Communicator, Call, keras.Model], Any]) -> None:
    original = getattr(keras.Model, name)

    @functools.wraps(original)
    def method(self: keras.Model, *args: Any, **kwargs: Any) -> Any:
        assert _prepared is not None
        with ids_out_of_range_in_one_line(), _not_weighted_in_one_line():
            return around(_prepared, functools.partial(original, self, *args, **kwargs), self)

    setattr(keras.Model, name, method)


@contextmanager
def _not_weighted_in_one_line() -> Iterator[None]:
    """Replace TensorFlow's long error about a loss that is not weighted. All ranks raise it in the same step."""
    try:
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


def _fit(communicator: Communicator, fit: Call, model: keras.Model) -> Any:
    if not _over_ranks(model):
        if getattr(model, "optimizer", None) is not None:
            _report_local(communicator, model)
        return fit()
    callbacks: Any = fit.keywords.get("callbacks") or []
    if isinstance(callbacks, keras.callbacks.CallbackList):
        several = callbacks.callbacks
    else:
        several = list(callbacks) if isinstance(callbacks, list | tuple) else [callbacks]
        fit = functools.partial(fit, callbacks=several)
    stops_on_nan = any(isinstance(one, keras.callbacks.TerminateOnNaN) for one in several)
    for one in several:
        for name in next((names for kind, names in _OF_OWN_ROWS.items() if isinstance(one, kind)), ()):
            setattr(one, name, _with_own_rows(getattr(one, name)))
        if isinstance(one, keras.callbacks.BackupAndRestore) and communicator.rank > 0:
            # Rank 0 makes the folder, writes and removes; the others send it their rows.
            one._save_model = functools.partial(_save_backup, one)
            one.on_train_end = lambda logs=None: None
    several.insert(0, _SameOnAllRanks(communicator, stops_on_nan))
    with same_steps_on_all_ranks(communicator):
        return fit()


def _evaluate(communicator: Communicator, evaluate: Call, model: keras.Model) -> Any:
    with same_steps_on_all_ranks(communicator) if _over_ranks(model) else nullcontext():
        return evaluate()


def _predict(communicator: Communicator, predict: Call, model: keras.Model) -> Any:
    """Predict on all ranks if the model has sharded tables. A rank can predict alone with any other model."""
    with same_steps_on_all_ranks(communicator) if sharded_tables(model) else nullcontext():
        return predict()


def _on_batch(communicator: Communicator, method: Call, model: keras.Model) -> Any:
    """Train or test on a batch. Return the metrics over all ranks if the model was compiled for them."""
    if not _over_ranks(model):
        return method()
    given = inspect.signature(method.func).bind(*method.args, **method.keywords)
    as_dict = given.arguments.pop("return_dict", False)
    logs = method.func(*given.args, **given.kwargs, return_dict=True)
    logs = {name: float(value) for name, value in model._get_metrics_result_or_logs(logs).items()}
    return logs if as_dict else model._flatten_metrics_in_order(logs)


def _results(communicator: Communicator, results: Call, model: keras.Model) -> Any:
    """Return the metrics over all ranks, and other values of a custom ``train_step`` as its last step returned them."""
    if not _over_ranks(model):
        return results()
    logs = [*results.args, *results.keywords.values()][-1]
    with metrics_of_all_ranks(model, communicator):
        found = results()
        return {**logs, **results_in(logs, model)} if found is logs and isinstance(logs, dict) else found


def _save(communicator: Communicator, save: Call, model: keras.Model) -> Any:
    tables = sharded_tables(model)
    if not tables and not _over_ranks(model):
        return save()
    compiled = getattr(model, "_compile_config", None)
    # Of a copy: to write a .h5 file, Keras removes the optimizer from it, on rank 0 alone.
    with nullcontext() if compiled is None else patched(compiled, config=dict(compiled.config)):
        return save_on_rank_0(communicator, tables, save)


def _export(communicator: Communicator, export: Call, model: keras.Model) -> Any:
    if sharded_tables(model):
        raise InputError(
            f"model.export cannot export model {model.name!r}, which has sharded tables",
            expected="an export that holds the rows of all ranks",
            fix="strategy.export_saved_model(folder, model)",
        )
    return export()


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
