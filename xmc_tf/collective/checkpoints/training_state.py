"""All that a training needs to go on: the model, what its optimizer keeps, and how far it is."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from xmc_tf.collective.checkpoints.checkpoint import load_tables, save_tables
from xmc_tf.collective.checkpoints.manifest import MANIFEST, read_manifest
from xmc_tf.collective.optimizers.loss_scale import LossScale
from xmc_tf.collective.tables.table import ShardedTable, table_of
from xmc_tf.common.errors import InputError
from xmc_tf.ranks.communicator import Communicator


def save_training(folder: str | Path, model: tf_keras.Model, communicator: Communicator) -> int:
    """Write a compiled model with its optimizer; to be called by all ranks, between two steps.

    Sharded tables and their slots are written by their owners, all else once. Batches that are being accumulated for
    a step are not kept.

    Example:
        >>> if step % 1000 == 0:
        ...     save_training("run/checkpoint", model, strategy.communicator)

    Args:
        folder: the checkpoint's; the one that is in it is replaced when the new one is complete.
        model: compiled with ``strategy.optimizer(...)``.
        communicator: the ranks.

    Returns:
        The number of steps made.
    """
    step = int(model.optimizer.iterations)
    replicated = {name: partial(_to_numpy, variable) for name, variable in _replicated(model).items()}
    save_tables(folder, tables_of(model), communicator, replicated, step)
    return step


def load_training(
    folder: str | Path, model: tf_keras.Model, communicator: Communicator, *, optimizer: bool = True
) -> int:
    """Read it into a model made in the same way, on any number of ranks; to be called by all of them.

    Example:
        >>> if has_checkpoint("run/checkpoint", strategy.communicator):
        ...     first_step = load_training("run/checkpoint", model, strategy.communicator)

    Args:
        folder: the checkpoint's.
        model: made, and compiled, as the one that was saved.
        communicator: the ranks.
        optimizer: whether training goes on; for evaluation and export the model is enough.

    Returns:
        The number of steps that were made.

    Raises:
        InputError: when the checkpoint is damaged, or belongs to another model; the message says which file or part.
    """
    if optimizer:
        model.optimizer.build(model.trainable_variables)
    targets = _replicated(model) if optimizer else _model_part(model)
    found = load_tables(folder, tables_of(model), communicator, slots=optimizer)
    for name, variable in targets.items():
        value = found.get(name)
        if value is None or tuple(value.shape) != tuple(variable.shape):
            raise InputError(
                f"{folder} does not fit the model: {name} ({variable.name})",
                expected=f"shape {tuple(variable.shape)}",
                received="nothing of that name" if value is None else f"shape {tuple(value.shape)}",
                fix="create and compile the model as it was when the checkpoint was written",
            )
    for name, variable in targets.items():
        variable.assign(tf.cast(found[name], variable.dtype))
    return read_manifest(folder).step


def has_checkpoint(folder: str | Path, communicator: Communicator) -> bool:
    """Return whether there is one to go on from; rank 0 looks, and all ranks get its answer."""
    return bool(communicator.broadcast((Path(folder) / MANIFEST).is_file()))


def tables_of(model: tf_keras.Model) -> list[ShardedTable]:
    """Return the sharded tables of a model, each once."""
    tables = (table_of(variable) for variable in model.variables)
    return list({table.name: table for table in tables if table is not None}.values())


def _model_part(model: tf_keras.Model) -> dict[str, tf.Variable]:
    """What is the same on all ranks of the model, by place: names count up with every model that a process makes."""
    variables = [variable for variable in model.variables if table_of(variable) is None]
    return {f"model/{number:05d}": variable for number, variable in enumerate(variables)}


def _replicated(model: tf_keras.Model) -> dict[str, tf.Variable]:
    """Return the same with what the optimizer keeps."""
    optimizer = model.optimizer
    scales = [part for part in vars(optimizer).values() if isinstance(part, LossScale)]
    kept = [*optimizer.variables, *(variable for scale in scales for variable in (scale.value, scale.good_steps))]
    return _model_part(model) | {f"optimizer/{number:05d}": variable for number, variable in enumerate(kept)}


def _to_numpy(variable: tf.Variable) -> np.ndarray:
    value: Any = variable.read_value()
    return tf.cast(value, tf.float32).numpy() if variable.dtype == tf.bfloat16 else value.numpy()
