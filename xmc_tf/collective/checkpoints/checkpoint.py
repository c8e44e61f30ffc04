"""Checkpoints of sharded tables. All ranks write them, and any number of ranks can read them."""

import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from xmc_tf.collective.checkpoints.manifest import (
    Manifest,
    SavedTable,
    check_ranges,
    read_manifest,
    write_manifest,
)
from xmc_tf.collective.checkpoints.shard_files import (
    ArraySource,
    SavedFile,
    read_arrays,
    read_rows,
    write_arrays,
    write_shard,
)
from xmc_tf.collective.dynamic_tables.saving import loading_forms, saved_forms
from xmc_tf.collective.tables.table import ShardedTable, get_rows, row_type, set_rows
from xmc_tf.common.errors import InputError
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks

VALUES = "values"  # the name under which a table's rows are saved, beside its slots

# A file with rows of this rank, the table, the shape of its rows, and a function that writes them, given the first
# one's number.
Part = tuple[SavedFile, ShardedTable, tuple[int, ...], Callable[[int, np.ndarray], None]]
# By table: the files of a rank's values and slots.
Written = dict[str, dict[str, SavedFile]]
Extra = Mapping[str, ArraySource]


def save_tables(
    folder: str | Path,
    tables: Sequence[ShardedTable],
    communicator: Communicator,
    extra: Extra | None = None,
    step: int = 0,
) -> None:
    """Write the tables, their slots, and the replicated arrays ``extra`` to a shared folder. All ranks must call it."""
    folder, tables = Path(folder), saved_forms(tables, communicator)

    def make_data_folder() -> str:
        if communicator.rank != 0:
            return ""
        folder.mkdir(parents=True, exist_ok=True)
        taken = [int(old.name.removeprefix("data-")) for old in folder.glob("data-*") if old.name[5:].isdigit()]
        made = folder / f"data-{max(taken, default=0) + 1:06d}"
        made.mkdir()
        return str(made)

    data = Path(communicator.broadcast(run_on_all_ranks(communicator, make_data_folder)))
    try:
        # Errors in the tables are found before anything is written.
        run_on_all_ranks(communicator, lambda: _check_tables(tables, data))
        mine: Written = run_on_all_ranks(communicator, lambda: _write(data, tables, communicator.rank))
        gathered = communicator.gather(mine)
        run_on_all_ranks(communicator, lambda: _finish(data, tables, gathered, extra or {}, step))
    except BaseException:
        if communicator.rank == 0:
            # If the manifest has been written, these data are the checkpoint, even if another rank fails after that.
            current = None
            with suppress(InputError):  # there is none yet
                current = read_manifest(folder).data
            if current != data.name:
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
    """Load tables and slots, creating slots a table lacks. Return the replicated arrays. All ranks must call it."""
    folder = Path(folder)
    here = run_on_all_ranks(communicator, lambda: read_manifest(folder) if communicator.rank == 0 else None)
    manifest = communicator.broadcast(here)
    assert manifest is not None
    data = folder / manifest.data

    def read() -> dict[str, np.ndarray]:
        forms = loading_forms(folder, manifest, tables)
        wanted = [part for table in forms for part in _parts_of(folder, manifest, table, slots)]
        # Damage is found before a table changes.
        paths = [shard.checked(data) for shard, *_ in wanted]
        extra = read_arrays(data, manifest.replicated)
        for path, (shard, table, row_shape, write) in zip(paths, wanted, strict=True):
            read_rows(path, shard, *table.partition.range(table.rank), row_shape, write)
        return extra

    return run_on_all_ranks(communicator, read)


def _check_tables(tables: Sequence[ShardedTable], data: Path) -> None:
    if not data.is_dir():
        raise InputError(
            f"{data}, which rank 0 created, does not exist on this rank",
            expected="a folder that all hosts share",
            fix="put checkpoints on a shared file system, at the same path on all hosts",
        )
    names = [table.name for table in tables]
    if doubled := {name for name in names if names.count(name) > 1}:
        raise InputError(f"two tables have the name {min(doubled)!r}", expected="a unique name for each table")
    for table in tables:
        low, high = table.partition.range(table.rank)
        for part, variable in {VALUES: table.variable, **table.slots}.items():
            if len(variable.shape) == 0 or variable.shape[0] != high - low:
                raise InputError(
                    f"table {table.name!r}, {part}: a checkpoint can only store arrays with one entry per row",
                    expected=f"{high - low} rows",
                    received=f"shape {tuple(variable.shape)}",
                    fix="pass arrays of other shapes as extra=",
                )


def _write(data: Path, tables: Sequence[ShardedTable], rank: int) -> Written:
    """Write this rank's rows and slots, and return their files by table. Rank 0 alone writes replicated tables."""
    written: Written = {}
    for number, table in enumerate(tables):
        written[table.name] = {}
        if table.size == 1 and rank > 0:
            continue
        for part, variable in {VALUES: table.variable, **table.slots}.items():
            path = data / f"{number:02d}-{_file_name(table.name)}.{_file_name(part)}.{rank:05d}.npy"

            def read(low: int, high: int, source: Any = variable) -> np.ndarray:
                return get_rows(source, low, high).numpy()

            shape = tuple(int(size) for size in variable.shape[1:])
            shard = write_shard(path, read, *table.partition.range(table.rank), shape, row_type(variable))
            written[table.name][part] = shard
    return written


def _finish(data: Path, tables: Sequence[ShardedTable], gathered: list[Written], extra: Extra, step: int) -> None:
    if not gathered:  # on the other ranks
        return
    for table in tables:
        for rank, theirs in enumerate(gathered if table.size > 1 else gathered[:1]):
            if set(theirs.get(table.name, {})) != set(gathered[0][table.name]) or len(theirs) != len(tables):
                raise InputError(
                    f"ranks 0 and {rank} have different arrays for table {table.name!r}",
                    expected=f"{sorted(gathered[0][table.name])}",
                    received=f"{sorted(theirs.get(table.name, {}))}",
                    fix="create the same tables and optimizers on all ranks before saving",
                )
    saved = {}
    for table in tables:
        writers = gathered if table.size > 1 else gathered[:1]
        files = {part: [theirs[table.name][part] for theirs in writers] for part in gathered[0][table.name]}
        for shards in files.values():
            check_ranges("the ranks", table.name, table.rows, shards)
        saved[table.name] = SavedTable(table.rows, table.dim, files.pop(VALUES), files)
    replicated = write_arrays(data, extra)
    write_manifest(data.parent, Manifest(data.name, int(step), len(gathered), saved, replicated))


def _parts_of(folder: Path, manifest: Manifest, table: ShardedTable, slots: bool) -> list[Part]:
    """Check the saved shape of a table, and return the files with this rank's rows of its values and slots."""
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
    variables = {VALUES: (saved.values, table.variable)}
    if slots:
        if lacking := sorted(set(table.slots) - set(saved.slots)):
            raise InputError(
                f"{folder}: no values were saved for slot {lacking[0]!r} of table {table.name!r}",
                expected=f"the slots {sorted(table.slots)}",
                received=f"{sorted(saved.slots)}",
                fix="use the optimizer of the checkpoint, or load with slots=False to start a new one",
            )
        variables |= {name: (shards, table.slot(name)) for name, shards in saved.slots.items()}
    low, high = table.partition.range(table.rank)
    parts: list[Part] = []
    for shards, variable in variables.values():

        def write(at: int, rows: np.ndarray, to: tf.Variable = variable) -> None:
            set_rows(to, at - low, rows)

        row_shape = tuple(int(size) for size in variable.shape[1:])
        own = [shard for shard in shards if shard.start < high and shard.stop > low]
        parts += [(shard, table, row_shape, write) for shard in own]
    return parts


def _file_name(name: str) -> str:
    """Replace characters of a table's name that are invalid in file names. Different names may give the same result."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", name)[:80]
