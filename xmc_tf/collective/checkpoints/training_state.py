from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from xmc_tf.collective.checkpoints.checkpoint import load_tables, save_tables
from xmc_tf.collective.checkpoints.manifest import MANIFEST, read_manifest
from xmc_tf.collective.optimizers.keras_optimizer import LossScale
from xmc_tf.collective.tables.table import ShardedTable, table_of
from xmc_tf.collective.tables.table_variable import name_of, plain_variable
from xmc_tf.common.errors import InputError
from xmc_tf.ranks.communicator import Communicator


def save_training(folder: str | Path, model: keras.Model, communicator: Communicator) -> int:
    """Write a checkpoint of a model and its optimizer, and return the number of completed steps. Accumulated gradients
    are not saved. All ranks must call it.
    """
    step = int(model.optimizer.iterations)
    replicated = {name: partial(_to_numpy, variable) for name, variable in _replicated(model).items()}
    save_tables(folder, tables_of(model), communicator, replicated, step)
    return step


def load_training(folder: str | Path, model: keras.Model, communicator: Communicator, *, optimizer: bool = True) -> int:
    """Load a checkpoint into a model built the same way, and return its number of steps. All ranks must call it."""
    if optimizer:
        model.optimizer.build(list(model.trainable_variables))
    targets = _replicated(model) if optimizer else _model_part(model)
    found = load_tables(folder, tables_of(model), communicator, slots=optimizer)
    for name, variable in targets.items():
        value = found.get(name)
        if value is None or tuple(value.shape) != tuple(variable.shape):
            raise InputError(
                f"{folder} does not fit the model: {name} ({name_of(variable)})",
                expected=f"shape {tuple(variable.shape)}",
                received="nothing of that name" if value is None else f"shape {tuple(value.shape)}",
                fix="create and compile the model as it was when the checkpoint was written",
            )
    for name, variable in targets.items():
        plain = plain_variable(variable)
        plain.assign(tf.cast(found[name], plain.dtype))
    return read_manifest(folder).step


def has_checkpoint(folder: str | Path, communicator: Communicator) -> bool:
    """Return whether rank 0 finds a checkpoint in ``folder``. All ranks must call it."""
    return bool(communicator.broadcast((Path(folder) / MANIFEST).is_file()))


def tables_of(model: keras.Model) -> list[ShardedTable]:
    """Return each sharded table of a model once. A stack of tables is replaced by its member tables."""
    tables = (table_of(variable) for variable in _weights(model))
    own = [member for table in tables if table is not None for member in table.members or [table]]
    return list({table.name: table for table in own}.values())


def _model_part(model: keras.Model) -> dict[str, tf.Variable]:
    """Return the model's replicated variables, keyed by position, because Keras' names depend on earlier models."""
    variables = [variable for variable in _weights(model) if table_of(variable) is None]
    return {f"model/{number:05d}": variable for number, variable in enumerate(variables)}


def _replicated(model: keras.Model) -> dict[str, tf.Variable]:
    optimizer = model.optimizer
    scales = [part for part in vars(optimizer).values() if isinstance(part, LossScale)]
    kept = [*optimizer.variables, *(variable for scale in scales for variable in (scale.value, scale.good_steps))]
    return _model_part(model) | {f"optimizer/{number:05d}": variable for number, variable in enumerate(kept)}


def _weights(model: keras.Model) -> Sequence[tf.Variable]:
    """Return the weights of a model without the variables of its metrics."""
    return model.weights if isinstance(model, keras.Model) else model.variables


def _to_numpy(variable: tf.Variable | keras.Variable) -> np.ndarray:
    variable = plain_variable(variable)
    value: Any = variable.read_value()
    return tf.cast(value, tf.float32).numpy() if variable.dtype == tf.bfloat16 else value.numpy()
