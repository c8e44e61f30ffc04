import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xmc_tf.collective.checkpoints.shard_files import SavedFile, flush, read_arrays, write_arrays, write_shard
from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import read_json
from xmc_tf.common.serialization import register
from xmc_tf.store.arrays import read_npy
from xmc_tf.store.checksums import checksum_of, is_unchanged
from xmc_tf.store.files import atomic_file

MANIFEST = "manifest.json"
VERSION = 4
_AGAIN = "copy it again, or go back to an earlier checkpoint"


@register
@dataclass(frozen=True)
class SavedTable:
    rows: int
    dim: int
    values: list[SavedFile]  # ordered by first row
    slots: dict[str, list[SavedFile]]


@register
@dataclass(frozen=True)
class Manifest:
    data: str  # the name of the data folder, which is beside the manifest
    step: int
    ranks: int
    tables: dict[str, SavedTable]
    replicated: SavedFile
    version: int = VERSION


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write a manifest atomically. This makes its data folder the current checkpoint."""
    content = dataclasses.asdict(manifest)
    with atomic_file(folder / MANIFEST) as part, part.open("w") as file:
        json.dump({"checksum": checksum_of(content), **content}, file, indent=1)
        flush(file)


def read_manifest(folder: str | Path) -> Manifest:
    path = Path(folder) / MANIFEST
    if not path.is_file():
        raise InputError(
            f"{path} does not exist", expected="a folder with a checkpoint in it", fix="check the folder's name"
        )
    try:
        content = read_json(path, expected="the manifest of a checkpoint", fix=_AGAIN)
        if content["version"] != VERSION:
            raise InputError(
                f"{path} was not written by this version of xmc_tf", expected=f"version {VERSION}",
                received=str(content["version"]), fix="remove the folder, and train from the beginning",
            )  # fmt: skip
        if not is_unchanged(content):
            raise InputError(
                f"{path} has changed since it was saved", expected=f"checksum {content['checksum']}",
                received=checksum_of(content), fix=_AGAIN,
            )  # fmt: skip
        del content["checksum"]
        tables = {}
        for name, entry in content.pop("tables").items():
            slots = {slot: [_file(shard) for shard in shards] for slot, shards in entry["slots"].items()}
            tables[name] = SavedTable(entry["rows"], entry["dim"], [*map(_file, entry["values"])], slots)
        manifest = Manifest(tables=tables, replicated=_file(content.pop("replicated")), **content)
        for name, table in manifest.tables.items():
            for shards in (table.values, *table.slots.values()):
                check_ranges(str(path), name, table.rows, shards)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{path} cannot be read: {type(error).__name__}: {error}",
            expected="the manifest of a checkpoint",
            fix=_AGAIN,
        ) from error
    return manifest


def _file(entry: dict[str, Any]) -> SavedFile:
    saved = SavedFile(**entry)
    if Path(saved.file).name != saved.file:
        raise ValueError(f"{saved.file} is not the name of a file")
    return saved


def check_ranges(where: str, name: str, rows: int, shards: Sequence[SavedFile]) -> None:
    at = 0
    for shard in shards:
        if shard.start != at or shard.stop < shard.start:
            raise InputError(
                f"{where}: table {name!r}: {shard.file} does not follow the file before it",
                expected=f"rows from {at} on",
                received=f"rows {shard.start} to {shard.stop - 1}",
                fix="use the same partition on all ranks, or copy the whole checkpoint again",
            )
        at = shard.stop
    if at != rows:
        raise InputError(
            f"{where}: the files of table {name!r} end too early", expected=f"{rows} rows", received=f"{at} rows"
        )


_DATA = "data-000001"


def read_checkpoint(folder: str | Path) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the whole tables and the other arrays, both by name. Any number of ranks may have written them."""
    manifest = read_manifest(folder)
    data = Path(folder) / manifest.data
    extra = read_arrays(data, manifest.replicated)
    tables = {
        name: np.concatenate([read_npy(shard.checked(data), name="shard") for shard in saved.values])
        for name, saved in manifest.tables.items()
    }
    return tables, extra


def write_checkpoint(folder: str | Path, tables: Mapping[str, np.ndarray], extra: Mapping[str, np.ndarray]) -> None:
    """Write tables and other arrays to a new folder, as a single rank would."""
    data = Path(folder) / _DATA
    data.mkdir(parents=True)
    saved = {}
    for number, (name, rows) in enumerate(tables.items()):
        path = data / f"{number:02d}.values.00000.npy"
        shard = write_shard(path, lambda low, high, rows=rows: rows[low:high], 0, len(rows), rows.shape[1:], rows.dtype)  # type: ignore[misc]
        saved[name] = SavedTable(len(rows), rows.shape[1], [shard], {})
    write_manifest(Path(folder), Manifest(_DATA, 0, 1, saved, write_arrays(data, extra)))
