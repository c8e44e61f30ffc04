"""Exports models with sharded tables. Each table becomes one ordinary variable, but no process ever holds all of it."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.fingerprint_pb2 import FingerprintDef

# Private, but the only variable without memory. tests/collective/test_saved_model.py proves that it is not saved
# itself, and that the rows written beside it become its value.
from tensorflow.python.ops.resource_variable_ops import UninitializedVariable
from tensorflow.python.saved_model import fingerprinting_utils

from xmc_tf.collective.dynamic_tables.saving import served_forms
from xmc_tf.collective.tables.table import ShardedTable, serve_from
from xmc_tf.collective.tables.table_variable import rows_on_rank_0
from xmc_tf.common.errors import InputError
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks
from xmc_tf.ranks.partition import even_rows
from xmc_tf.store.checksums import checksum_of, record_files
from xmc_tf.store.models import ABOUT, EXPORT, PLAIN
from xmc_tf.store.publishing import publish

_SLICES = Path("variables", "slices")


class Signature(NamedTuple):
    """A function and the specification of its input tensors. Requests use the names of the inputs."""

    function: Callable[..., Any]
    inputs: Sequence[tf.TensorSpec] | Mapping[str, tf.TensorSpec]


def export_saved_model(
    folder: str | Path,
    signatures: keras.Model | Mapping[str, Signature],
    tables: Sequence[ShardedTable],
    communicator: Communicator,
    *,
    track: Sequence[Any] = (),
) -> Path:
    """Write a SavedModel that plain TensorFlow loads, and return its folder. All ranks must call it. The new export
    replaces an older one when it is complete; other files in the folder stay. Unused tables are left out. ``track``
    lists objects that own further resources of the functions, such as lookup tables.
    """
    folder = Path(folder)
    with (
        served_forms(tables, communicator) as tables,
        publish(folder, EXPORT) if communicator.rank == 0 else nullcontext() as part,
    ):
        here = run_on_all_ranks(
            communicator, lambda: {} if part is None else _save_graph(part, signatures, tables, track)
        )
        keys: dict[str, str] = communicator.broadcast(here)
        for table in (table for table in tables if table.name in keys):
            for low, rows in rows_on_rank_0(table, table.variable, communicator):
                run_on_all_ranks(communicator, partial(_write_slice, part, table, keys[table.name], low, rows))
        run_on_all_ranks(communicator, lambda: _merge(part) if part is not None else None)
    communicator.barrier()
    return folder


def _save_graph(
    part: Path,
    signatures: keras.Model | Mapping[str, Signature],
    tables: Sequence[ShardedTable],
    track: Sequence[Any],
) -> dict[str, str]:
    """Save everything except the tables' rows, and return the checkpoint key of each used table's variable."""
    owners = [*track]
    if isinstance(signatures, keras.Model):
        owners.append(signatures)
        signatures = {"serving_default": _signature_of(signatures)}
    whole = {}
    for table in tables:
        # A placeholder, whose variable takes no memory.
        shape, name = [table.rows, table.dim], table.name.replace(":", "_")
        variable = UninitializedVariable(shape=shape, dtype=table.variable.dtype, trainable=False, name=name)
        whole[table] = ShardedTable(table.name, table.rows, table.dim, even_rows(table.rows, 1), 0, variable)
    with serve_from(whole):
        functions = {name: _traced(name, signature) for name, signature in signatures.items()}
    used = {variable.ref() for function in functions.values() for variable in function.graph.variables}
    of_tables = {f"table_{number}": one for number, one in enumerate(whole.values()) if one.variable.ref() in used}
    servable = tf.Module()
    servable.tables = {key: one.variable for key, one in of_tables.items()}
    placeholders = {one.variable.ref() for one in whole.values()}
    servable.replicated = [ref.deref() for ref in sorted(used - placeholders, key=lambda ref: ref.deref().name)]
    servable.resources = [resource for owner in owners for resource in _resources(owner)]
    try:
        # Gradients run Python, which a server does not have.
        options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
        tf.saved_model.save(servable, str(part), functions, options)
    except AssertionError as error:
        if "untracked" not in str(error):
            raise
        raise InputError(
            "a signature uses a lookup table or another resource that the exported model does not own",
            expected="a Keras model or track=[…] that holds it",
            received=str(error).splitlines()[0],
        ) from error
    return {one.name: f"tables/{key}/.ATTRIBUTES/VARIABLE_VALUE" for key, one in of_tables.items()}


def _signature_of(model: keras.Model) -> Signature:
    if not model.built or getattr(model, "inputs", None) is None:
        raise InputError(
            f"model {model.name!r} has no known inputs",
            expected="a model with symbolic inputs",
            received="a subclassed or unbuilt model",
            fix="pass {'serving_default': Signature(function, inputs)} instead of the model",
        )
    specs = []
    for tensor in model.inputs:
        shape, dtype = [None, *tensor.shape[1:]], tf.dtypes.as_dtype(tensor.dtype)
        ragged = tf.RaggedTensorSpec(shape, dtype) if tensor.ragged else None
        specs.append(ragged or tf.TensorSpec(shape, dtype, tensor.name))
    # With names and structure, which a Sequential model lacks.
    network = keras.Model(model.inputs[0], model.outputs) if isinstance(model, keras.Sequential) else model

    def serve(*tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        # Dictionaries are flattened in the order of their keys.
        outputs = model(keras.tree.pack_sequence_as(network.input, list(tensors)), training=False)
        return dict(zip(network.output_names, keras.tree.flatten(outputs), strict=True))

    return Signature(serve, specs)


def _traced(name: str, signature: Signature) -> tf.types.experimental.ConcreteFunction:
    """Trace a function that uses whole tables, and raise InputError if it needs other ranks."""
    # A tf.function that has been used in training would return its cached graph.
    inner = getattr(signature.function, "python_function", signature.function)
    inputs: Sequence[Any] = [*signature.inputs]
    if isinstance(signature.inputs, Mapping):
        inputs = [{key: tf.TensorSpec(spec.shape, spec.dtype, key) for key, spec in signature.inputs.items()}]

    def call(*inputs: Any) -> dict[str, tf.Tensor]:
        outputs = inner(*inputs)
        return dict(outputs) if isinstance(outputs, Mapping) else {"outputs": outputs}

    concrete = tf.function(call).get_concrete_function(*inputs)
    definition = concrete.graph.as_graph_def()
    operations = {node.op for node in definition.node}
    operations |= {node.op for function in definition.library.function for node in function.node_def}
    # Those of Horovod, and those of mpi4py, which is called from Python.
    if foreign := sorted(name for name in operations if name.startswith("Horovod") or "PyFunc" in name):
        raise InputError(
            f"signature {name!r} communicates with other ranks",
            expected="a function that one process can run",
            received=f"operations {foreign}",
            fix="look up rows in the strategy's tables, call no collectives, and pass the undecorated function if the "
            "tf.function was already used in training",
        )
    return concrete


def _resources(owner: Any) -> list[Any]:
    """Return the lookup tables and other resources of an object and its parts."""
    is_resource = tf.saved_model.experimental.TrackableResource
    if isinstance(owner, tf.Module):
        return list(owner._flatten(predicate=lambda leaf: isinstance(leaf, is_resource)))
    if isinstance(owner, keras.layers.Layer):
        parts = tf.train.TrackableView(owner).descendants()
        return [part for part in parts if isinstance(part, is_resource)]
    return [owner]


def _write_slice(part: Path | None, table: ShardedTable, key: str, low: int, rows: np.ndarray | None) -> None:
    """On rank 0, write rows as a checkpoint of a slice of the whole table's variable."""
    if part is None or rows is None:
        return
    where = f"{table.rows} {table.dim} {low},{rows.shape[0]}:-"
    name = f"{key.split('/')[1]}-{low:015d}"
    with tf.device("/cpu:0"):
        try:
            prefix, tensors = str(part / _SLICES / name), [tf.constant(rows)]
            tf.raw_ops.SaveV2(prefix=prefix, tensor_names=[key], shape_and_slices=[where], tensors=tensors)
        except tf.errors.OpError as error:  # such as a full disk
            raise OSError(f"{part / _SLICES / name}: {error.message}") from error


def _merge(part: Path) -> None:
    variables, slices = part / "variables", part / _SLICES
    slices.mkdir(exist_ok=True)
    for file in list(variables.glob("variables.*")):
        # A merge deletes the indices that it has read, so they must not have the name of its result.
        file.rename(slices / file.name)
    prefixes = sorted(str(index.with_suffix("")) for index in slices.glob("*.index"))
    try:
        tf.raw_ops.MergeV2Checkpoints(
            checkpoint_prefixes=prefixes, destination_prefix=str(variables / "variables"), delete_old_dirs=False
        )
    except tf.errors.OpError as error:
        raise OSError(f"{variables}: {error.message}") from error
    shutil.rmtree(slices)
    write_fingerprint(part)  # replaces that of the graph alone
    (part / ABOUT).parent.mkdir(exist_ok=True)
    about: dict[str, Any] = {"format": PLAIN, "files": record_files(part, exclude=[ABOUT])}
    about["checksum"] = checksum_of(about)
    (part / ABOUT).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def write_fingerprint(folder: Path) -> None:
    """Write ``fingerprint.pb`` into an otherwise complete SavedModel. Exports of equal models get equal files."""
    fingerprinting_utils.write_fingerprint(str(folder))
    path = folder / "fingerprint.pb"
    content = FingerprintDef.FromString(path.read_bytes())
    if "uuid" in FingerprintDef.DESCRIPTOR.fields_by_name:  # each call writes another one
        content.ClearField("uuid")
    path.write_bytes(content.SerializeToString(deterministic=True))
