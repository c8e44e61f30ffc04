"""Checkpoints of sharded tables: written by n ranks, each its own rows, and read by any m.

The folder holds ``manifest.json`` and the folder of data that it names. A new checkpoint's data go into a new folder;
replacing the manifest, one rename, is what makes it count. Whatever stops a save before that leaves the former
checkpoint as it was.
"""

import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from xmc_tf.collective.checkpoints.manifest import (
    Manifest,
    SavedTable,
    check_ranges,
    read_manifest,
    write_manifest,
)
from xmc_tf.collective.checkpoints.packed_arrays import Given, read_arrays, write_arrays
from xmc_tf.collective.checkpoints.shard_files import ShardFile, check_shard, read_rows, write_shard
from xmc_tf.collective.tables.row_access import get_rows, row_type, set_rows
from xmc_tf.collective.tables.table import ShardedTable
from xmc_tf.common.errors import InputError
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks

VALUES = "values"  # how a table's rows are called beside its slots

# Of each of a rank's tables: the files of its values and of its slots.
Written = dict[str, dict[str, ShardFile]]


def save_tables(
    folder: str | Path,
    tables: Sequence[ShardedTable],
    communicator: Communicator,
    extra: Mapping[str, Given] | None = None,
    step: int = 0,
) -> None:
    """Write the tables with their slots, and what is the same on all ranks; to be called by all of them.

    Every rank writes its own rows, block by block, so the folder must be one that all hosts see. A checkpoint that
    was in it is replaced when the new one is complete.

    Example:
        >>> save_tables("run/checkpoint", [table], communicator, {"dense/kernel": kernel.numpy()}, step=12000)

    Args:
        folder: the checkpoint's.
        tables: what is sharded; the same ones on all ranks.
        communicator: the ranks.
        extra: what is the same on all ranks, arrays or functions that give them when their turn comes, so that they
            need not all be in memory a second time; rank 0 writes its own.
        step: how far training is.

    Raises:
        InputError: when the ranks do not see one folder, or disagree on what there is to write.
        OSError: when a rank cannot write, on a full disk say; the former checkpoint is kept.
    """
    folder = Path(folder)
    data = Path(communicator.broadcast(run_on_all_ranks(communicator, lambda: _make_room(folder, communicator))))
    try:
        # What is wrong with the tables is found before anything is written.
        run_on_all_ranks(communicator, lambda: _check_tables(tables, data))
        mine: Written = run_on_all_ranks(communicator, lambda: _write(data, tables, communicator.rank))
        everybodys = communicator.gather(mine)
        run_on_all_ranks(communicator, lambda: _finish(folder, data, tables, everybodys, extra or {}, step))
    except BaseException:
        # Also when another rank has died just after the manifest was written: then it is the checkpoint.
        if communicator.rank == 0 and not _counts(folder, data):
            shutil.rmtree(data, ignore_errors=True)
        raise
    if communicator.rank == 0:
        for old in folder.glob("data-*"):
            if old != data:
                shutil.rmtree(old, ignore_errors=True)
    communicator.barrier()


def load_tables(
    folder: str | Path, tables: Sequence[ShardedTable], communicator: Communicator, *, slots: bool = True
) -> dict[str, np.ndarray]:
    """Fill the tables and their slots from a checkpoint of any number of ranks; to be called by all of them.

    Each rank reads the rows that are now its own. Slots that the tables do not have yet are made.

    Args:
        folder: the checkpoint's.
        tables: what to fill: of the checkpoint's tables those that are needed.
        communicator: the ranks.
        slots: whether training goes on; for evaluation and export the rows are enough.

    Returns:
        What was the same on all ranks, as it was given to ``save_tables``.

    Raises:
        InputError: when a file is missing, cut short, damaged, or from another checkpoint; the message names it.
            A table that has been filled before that was noticed stays filled.
    """
    folder = Path(folder)
    here = run_on_all_ranks(communicator, lambda: read_manifest(folder) if communicator.rank == 0 else None)
    manifest = communicator.broadcast(here)
    assert manifest is not None
    data = folder / manifest.data

    def read() -> dict[str, np.ndarray]:
        wanted = [part for table in tables for part in _parts_of(folder, manifest, table, slots)]
        for table, shards, _ in wanted:
            low, high = table.partition.bounds[table.rank : table.rank + 2]
            for shard in shards:
                if shard.start < high and shard.stop > low:
                    check_shard(data / shard.file, shard)
        extra = read_arrays(data, manifest.replicated)
        for table, shards, variable in wanted:
            low, high = (int(bound) for bound in table.partition.bounds[table.rank : table.rank + 2])
            for shard in shards:
                read_rows(data, shard, low, high, _putter(variable, low))
        return extra

    return run_on_all_ranks(communicator, read)


def _make_room(folder: Path, communicator: Communicator) -> str:
    """Return the new folder for data, made by rank 0."""
    if communicator.rank != 0:
        return ""
    folder.mkdir(parents=True, exist_ok=True)
    taken = [int(old.name.removeprefix("data-")) for old in folder.glob("data-*") if old.name[5:].isdigit()]
    data = folder / f"data-{max(taken, default=0) + 1:06d}"
    data.mkdir()
    return str(data)


def _check_tables(tables: Sequence[ShardedTable], data: Path) -> None:
    if not data.is_dir():
        raise InputError(
            f"{data}, which rank 0 created, does not exist on this rank",
            expected="a folder that all hosts share",
            fix="put checkpoints on a shared file system, at the same path on all hosts",
        )
    names = [table.name for table in tables]
    if doubled := {name for name in names if names.count(name) > 1}:
        raise InputError(f"two tables have the name {min(doubled)!r}", expected="a name of its own for each")
    for table in tables:
        low, high = table.partition.bounds[table.rank : table.rank + 2]
        for part, variable in {VALUES: table.variable, **table.slots}.items():
            if len(variable.shape) == 0 or variable.shape[0] != high - low:
                raise InputError(
                    f"table {table.name!r}, {part}: a checkpoint can only store arrays with one entry per row",
                    expected=f"{high - low} rows",
                    received=f"shape {tuple(variable.shape)}",
                    fix="pass arrays that are not per row as extra=",
                )


def _write(data: Path, tables: Sequence[ShardedTable], rank: int) -> Written:
    """Write this rank's rows and slots."""
    written: Written = {}
    for number, table in enumerate(tables):
        low, high = (int(bound) for bound in table.partition.bounds[table.rank : table.rank + 2])
        written[table.name] = {
            part: write_shard(
                data / f"{number:02d}-{_file_name(table.name)}.{_file_name(part)}.{rank:05d}.npy",
                _reader(variable),
                low,
                high,
                tuple(int(size) for size in variable.shape[1:]),
                row_type(variable),
            )
            for part, variable in {VALUES: table.variable, **table.slots}.items()
        }
    return written


def _finish(
    folder: Path,
    data: Path,
    tables: Sequence[ShardedTable],
    everybodys: list[Written],
    extra: Mapping[str, Given],
    step: int,
) -> None:
    """Rank 0 writes what is the same everywhere, and the manifest that makes it all count."""
    if not everybodys:  # on the other ranks
        return
    for rank, theirs in enumerate(everybodys):
        for table in tables:
            if set(theirs.get(table.name, {})) != set(everybodys[0][table.name]) or len(theirs) != len(tables):
                raise InputError(
                    f"ranks 0 and {rank} have different arrays for table {table.name!r}",
                    expected=f"{sorted(everybodys[0][table.name])}",
                    received=f"{sorted(theirs.get(table.name, {}))}",
                    fix="create the same tables and optimizers on all ranks before saving",
                )
    saved = {}
    for table in tables:
        files = {part: [theirs[table.name][part] for theirs in everybodys] for part in everybodys[0][table.name]}
        for shards in files.values():
            check_ranges("the ranks", table.name, table.rows, shards)
        saved[table.name] = SavedTable(table.rows, table.dim, files.pop(VALUES), files)
    replicated = write_arrays(data, extra)
    write_manifest(folder, Manifest(data.name, int(step), len(everybodys), saved, replicated))


def _counts(folder: Path, data: Path) -> bool:
    """Return whether the manifest names these data."""
    try:
        return read_manifest(folder).data == data.name
    except InputError:  # there is none yet
        return False


def _parts_of(
    folder: Path, manifest: Manifest, table: ShardedTable, slots: bool
) -> list[tuple[ShardedTable, list[ShardFile], tf.Variable]]:
    """Return a table's rows and slots with the files that hold them, after a look at whether they fit."""
    saved = manifest.tables.get(table.name)
    if saved is None:
        raise InputError(
            f"{folder} has no table {table.name!r}",
            expected=f"one of {sorted(manifest.tables)}",
            fix="give the table the name under which it was saved",
        )
    if (saved.rows, saved.dim) != (table.rows, table.dim):
        raise InputError(
            f"{folder}: table {table.name!r} was saved with another shape",
            expected=f"({table.rows}, {table.dim}), as the model has it",
            received=f"({saved.rows}, {saved.dim})",
            fix="create the model as it was when it was saved",
        )
    parts = [(table, saved.values, table.variable)]
    if not slots:
        return parts
    if lacking := sorted(set(table.slots) - set(saved.slots)):
        raise InputError(
            f"{folder}: no values were saved for slot {lacking[0]!r} of table {table.name!r}",
            expected=f"the slots {sorted(table.slots)}",
            received=f"{sorted(saved.slots)}",
            fix="use the optimizer of the training, or load with slots=False and start a new one",
        )
    parts += [(table, shards, table.slot(name)) for name, shards in saved.slots.items()]
    for _, shards, variable in parts:
        row_shape = [int(size) for size in variable.shape[1:]]
        if shards and shards[0].row_shape != row_shape:
            raise InputError(
                f"{folder / manifest.data / shards[0].file}: rows of another shape than table {table.name!r} has here",
                expected=f"{row_shape}",
                received=f"{shards[0].row_shape}",
            )
    return parts


def _reader(variable: tf.Variable) -> Callable[[int, int], np.ndarray]:
    return lambda low, high: get_rows(variable, low, high).numpy()


def _putter(variable: tf.Variable, offset: int) -> Callable[[int, np.ndarray], None]:
    return lambda start, rows: set_rows(variable, start - offset, rows)


def _file_name(name: str) -> str:
    """Return a table's name without what a file's may not hold; the number in front keeps them apart."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", name)[:80]
