"""A SavedModel of a model with sharded tables, in which every table is one ordinary variable.

No process ever holds a whole table. Rank 0 traces the model with stand-ins for the tables, variables that have a shape
but no memory, and saves that. Every rank then writes its rows beside it as slices of those variables, in blocks, in
TensorFlow's own checkpoint format, and rank 0 merges the indices: one variable, many files, which is what TensorFlow
itself does with partitioned variables. Who loads it sees nothing of all that.
"""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf
import tf_keras

# Private, but the only variable that can be made without its memory. tests/collective/test_saved_model.py shows that
# one without a value is left out of what is saved, and that the rows written beside it fill it.
from tensorflow.python.ops.resource_variable_ops import UninitializedVariable
from tensorflow.python.saved_model.fingerprinting_utils import write_fingerprint

from xmc_tf.collective.checkpoints.shard_files import blocks, rows_in_a_block
from xmc_tf.collective.tables.row_access import get_rows
from xmc_tf.collective.tables.stand_ins import standing_in
from xmc_tf.collective.tables.table import ShardedTable
from xmc_tf.common.errors import InputError
from xmc_tf.common.folders.checksums import checksum_of, record_files
from xmc_tf.common.folders.export_folder import ABOUT, EXPORT, PLAIN
from xmc_tf.common.folders.placing import placed_folder
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks
from xmc_tf.ranks.partition import even_rows

# What is in memory a second time while a shard is written.
BLOCK_BYTES = 64 << 20


class Signature(NamedTuple):
    """One way to call the exported model.

    Args:
        function: from tensors, in the form of ``inputs``, to a tensor or a dictionary of tensors.
        inputs: what it is called with; the names are the ones that a request uses.
    """

    function: Callable[..., Any]
    inputs: Sequence[tf.TensorSpec] | Mapping[str, tf.TensorSpec]


def export_saved_model(
    folder: str | Path,
    signatures: tf_keras.Model | Mapping[str, Signature],
    tables: Sequence[ShardedTable],
    communicator: Communicator,
    *,
    track: Sequence[Any] = (),
) -> Path:
    """Write a SavedModel that plain TensorFlow and TensorFlow Serving load; to be called by all ranks.

    It is written once, by global rank 0, however many hosts there are; ranks that see its folder add their rows
    themselves, the rows of the others pass through rank 0 in blocks.

    Example:
        >>> export_saved_model("served/1", model, strategy.tables, strategy.communicator)
        >>> score = Signature(lambda ids: {"score": tower(ids)}, [tf.TensorSpec([None], tf.int64, "ids")])
        >>> export_saved_model("served/2", {"serving_default": score}, strategy.tables, strategy.communicator)

    Args:
        folder: where to; an older export there is replaced when the new one is complete, other files stay.
        signatures: a Keras model, which is then called with ``training=False``, or signatures by name.
        tables: those that the model looks things up in; others do no harm.
        communicator: the ranks.
        track: lookup tables and the like that the functions use and no given model owns.

    Returns:
        The folder.

    Raises:
        InputError: when the model cannot be served as it is; the message says why.
    """
    folder = Path(folder)
    with placed_folder(folder, EXPORT) if communicator.rank == 0 else nullcontext() as part:
        keys: dict[str, str] = communicator.broadcast(
            run_on_all_ranks(
                communicator, lambda: _save_graph(part, signatures, tables, track) if part is not None else {}
            )
        )
        part = Path(communicator.broadcast(str(part)))
        mine = [table for table in tables if table.name in keys]
        sees = communicator.allgather(part.is_dir())
        if sees[communicator.rank]:
            run_on_all_ranks(communicator, lambda: _write_own_rows(part, mine, keys))
        else:
            run_on_all_ranks(communicator, lambda: None)
        for rank in (rank for rank, it_does in enumerate(sees) if not it_does):
            _stream_rows(part, mine, keys, communicator, rank)
        run_on_all_ranks(communicator, lambda: _merge(part) if communicator.rank == 0 else None)
    communicator.barrier()
    return folder


def _save_graph(
    part: Path,
    signatures: tf_keras.Model | Mapping[str, Signature],
    tables: Sequence[ShardedTable],
    track: Sequence[Any],
) -> dict[str, str]:
    """Save all but the tables' rows; gives the names of the used tables' variables in the checkpoint."""
    owners = [*track]
    if isinstance(signatures, tf_keras.Model):
        owners.append(signatures)
        signatures = {"serving_default": _signature_of(signatures)}
    whole = {table: _whole(table) for table in tables}
    with standing_in(whole):
        functions = {name: _traced(name, signature) for name, signature in signatures.items()}

    used = {variable.ref() for function in functions.values() for variable in function.graph.variables}
    servable = tf.Module()
    servable.tables = {
        f"table_{number}": one.variable for number, one in enumerate(whole.values()) if one.variable.ref() in used
    }
    stand_ins = {one.variable.ref() for one in whole.values()}
    servable.replicated = [ref.deref() for ref in sorted(used - stand_ins, key=lambda ref: ref.deref().name)]
    servable.resources = [resource for owner in owners for resource in _resources(owner)]
    try:
        tf.saved_model.save(servable, str(part), signatures=functions)
    except AssertionError as error:
        if "untracked" not in str(error):
            raise
        raise InputError(
            "a signature uses a lookup table or another resource that the exported model does not own",
            expected="a Keras model or track=[…] that holds it",
            received=str(error).splitlines()[0],
        ) from error
    return {
        one.name: f"tables/table_{number}/.ATTRIBUTES/VARIABLE_VALUE"
        for number, one in enumerate(whole.values())
        if one.variable.ref() in used
    }


def _whole(table: ShardedTable) -> ShardedTable:
    """Return the whole table as a single process would have it, with a variable that takes no memory."""
    variable = UninitializedVariable(
        shape=[table.rows, table.dim], dtype=table.variable.dtype, trainable=False, name=table.name.replace(":", "_")
    )
    return ShardedTable(table.name, table.rows, table.dim, even_rows(table.rows, 1), 0, variable)


def _signature_of(model: tf_keras.Model) -> Signature:
    """How a Keras model is called."""
    if not model.built or getattr(model, "inputs", None) is None:
        raise InputError(
            f"model {model.name!r} has no known inputs",
            expected="a model with symbolic inputs",
            received="a subclassed model",
            fix="give signatures={'serving_default': Signature(function, inputs)}",
        )
    specs = [
        tf.TensorSpec([None, *tensor.shape[1:]], tensor.dtype, name)
        for name, tensor in zip(model.input_names, model.inputs, strict=True)
    ]

    def serve(*tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        outputs = model(tf.nest.pack_sequence_as(model.input, list(tensors)), training=False)
        return dict(zip(model.output_names, tf.nest.flatten(outputs), strict=True))

    return Signature(serve, specs)


def _traced(name: str, signature: Signature) -> tf.types.experimental.ConcreteFunction:
    """Return the function's graph, with the whole tables in it and nothing that needs other ranks."""
    # A tf.function that has been used in training would give the graph that it was traced to then.
    inner = getattr(signature.function, "python_function", signature.function)

    if isinstance(signature.inputs, Mapping):
        specs = {key: tf.TensorSpec(spec.shape, spec.dtype, key) for key, spec in signature.inputs.items()}

        def call(inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            return _named(inner(inputs))

        concrete = tf.function(call).get_concrete_function(specs)
    else:

        def call_by_place(*inputs: tf.Tensor) -> dict[str, tf.Tensor]:
            return _named(inner(*inputs))

        concrete = tf.function(call_by_place).get_concrete_function(*signature.inputs)
    definition = concrete.graph.as_graph_def()
    operations = {node.op for node in definition.node}
    operations |= {node.op for function in definition.library.function for node in function.node_def}
    if foreign := sorted(operation for operation in operations if operation.startswith("Horovod")):
        raise InputError(
            f"signature {name!r} communicates with other ranks",
            expected="a function that one process can run",
            received=f"operations {foreign}",
            fix="call no collective in it, and no tf.function that was already used in training: give the function "
            "under the decorator, and look rows up by the strategy's tables",
        )
    return concrete


def _named(outputs: Any) -> dict[str, tf.Tensor]:
    return dict(outputs) if isinstance(outputs, Mapping) else {"outputs": outputs}


def _resources(owner: Any) -> list[Any]:
    """Return an object's lookup tables, wherever in it they are."""
    is_resource = tf.saved_model.experimental.TrackableResource
    if isinstance(owner, tf.Module):
        return list(owner._flatten(predicate=lambda leaf: isinstance(leaf, is_resource)))
    return [owner]


def _write_own_rows(part: Path, tables: Sequence[ShardedTable], keys: Mapping[str, str]) -> None:
    for table in tables:
        for low, high in _blocks_of(table, table.rank):
            _write_slice(part, table, keys, low, get_rows(table.variable, low - table.start, high - table.start))


def _stream_rows(
    part: Path, tables: Sequence[ShardedTable], keys: Mapping[str, str], communicator: Communicator, rank: int
) -> None:
    """Write the rows of a rank that does not see the folder, on rank 0, block by block."""
    for table in tables:
        for low, high in _blocks_of(table, rank):
            block = None
            if communicator.rank == rank:
                block = get_rows(table.variable, low - table.start, high - table.start).numpy()
            arrived = communicator.gather(block)

            def write(table: ShardedTable = table, low: int = low, arrived: list[Any] = arrived) -> None:
                if arrived:  # on rank 0
                    _write_slice(part, table, keys, low, tf.constant(arrived[rank]))

            run_on_all_ranks(communicator, write)


def _blocks_of(table: ShardedTable, rank: int) -> list[tuple[int, int]]:
    """Return a rank's rows, by their numbers in the whole table, in blocks."""
    low, high = (int(bound) for bound in table.partition.bounds[rank : rank + 2])
    rows = rows_in_a_block((table.dim,), table.variable.dtype.as_numpy_dtype, BLOCK_BYTES)
    return list(blocks(low, high, rows))


def _write_slice(part: Path, table: ShardedTable, keys: Mapping[str, str], low: int, rows: tf.Tensor) -> None:
    """Write rows of the whole table's variable as a checkpoint of that slice alone."""
    key = keys[table.name]
    where = f"{table.rows} {table.dim} {low},{rows.shape[0]}:-"
    name = f"{key.split('/')[1]}-{low:015d}"
    with tf.device("/cpu:0"):
        try:
            tf.raw_ops.SaveV2(
                prefix=str(_slices(part) / name), tensor_names=[key], shape_and_slices=[where], tensors=[rows]
            )
        except tf.errors.OpError as error:  # a full disk, for one
            raise OSError(f"{_slices(part) / name}: {error.message}") from error


def _merge(part: Path) -> None:
    """Makes one checkpoint of the graph's and of all slices."""
    variables = part / "variables"
    slices = _slices(part)
    slices.mkdir(exist_ok=True)
    for file in list(variables.glob("variables.*")):
        # A merge ends by deleting the indices it has read, which must not be the one it has written.
        file.rename(slices / file.name)
    prefixes = sorted(str(index.with_suffix("")) for index in slices.glob("*.index"))
    try:
        tf.raw_ops.MergeV2Checkpoints(
            checkpoint_prefixes=prefixes, destination_prefix=str(variables / "variables"), delete_old_dirs=False
        )
    except tf.errors.OpError as error:
        raise OSError(f"{variables}: {error.message}") from error
    shutil.rmtree(slices)
    write_fingerprint(str(part))  # of what is there now
    (part / ABOUT).parent.mkdir(exist_ok=True)
    about: dict[str, Any] = {"format": PLAIN, "files": record_files(part, but=[ABOUT])}
    about["checksum"] = checksum_of(about)
    (part / ABOUT).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def _slices(part: Path) -> Path:
    return part / "variables" / "slices"
