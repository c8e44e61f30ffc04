"""Callbacks of Keras that copy weights or write files, adapted to several ranks."""

import functools
from collections.abc import Callable
from typing import Any

import keras

from xmc_tf.collective.tables.table_variable import own_rows
from xmc_tf.ranks.communicator import Communicator


def prepare_callback(callback: keras.callbacks.Callback, communicator: Communicator) -> None:
    """Make a callback of a model over all ranks work as in one process."""
    if isinstance(callback, keras.callbacks.EarlyStopping):  # remembers weights and sets them again
        for name in ("on_train_begin", "on_epoch_end", "on_train_end"):
            setattr(callback, name, _with_own_rows(getattr(callback, name)))
    if isinstance(callback, keras.callbacks.BackupAndRestore) and communicator.rank > 0:
        # Rank 0 makes the folder, writes and removes; the others send it their rows.
        callback._save_model = lambda: callback.model.save_weights(callback._weights_path, overwrite=True)
        callback.on_train_end = lambda logs=None: None


def _with_own_rows(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that copies and sets the rows of its rank only, so that no rank holds a whole table."""

    @functools.wraps(method)
    def of_own_rows(*args: Any, **kwargs: Any) -> Any:
        with own_rows():
            return method(*args, **kwargs)

    return of_own_rows
