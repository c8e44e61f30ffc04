"""Checkpoints as whole arrays in one process, without TensorFlow."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from xmc_tf.collective.checkpoints.manifest import Manifest, SavedTable, read_manifest, write_manifest
from xmc_tf.collective.checkpoints.packed_arrays import read_arrays, write_arrays
from xmc_tf.collective.checkpoints.shard_files import read_rows, write_shard

_DATA = "data-000001"


def read_checkpoint(folder: str | Path) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the tables of a checkpoint of any number of ranks, and its other arrays, both by name."""
    manifest = read_manifest(folder)
    data = Path(folder) / manifest.data
    extra = read_arrays(data, manifest.replicated)
    tables = {}
    for name, saved in manifest.tables.items():
        rows = np.empty((saved.rows, saved.dim), saved.values[0].dtype if saved.values else np.float32)

        def put(start: int, some: np.ndarray, rows: np.ndarray = rows) -> None:
            rows[start : start + len(some)] = some

        for shard in saved.values:
            read_rows(data, shard, 0, saved.rows, put)
        tables[name] = rows
    return tables, extra


def write_checkpoint(folder: str | Path, tables: Mapping[str, np.ndarray], extra: Mapping[str, np.ndarray]) -> None:
    """Write tables and other arrays as a checkpoint of one rank into a new folder."""
    data = Path(folder) / _DATA
    data.mkdir(parents=True)
    saved = {}
    for number, (name, rows) in enumerate(tables.items()):
        path = data / f"{number:02d}.values.00000.npy"
        shard = write_shard(path, lambda low, high, rows=rows: rows[low:high], 0, len(rows), rows.shape[1:], rows.dtype)  # type: ignore[misc]
        saved[name] = SavedTable(len(rows), rows.shape[1], [shard], {})
    write_manifest(Path(folder), Manifest(_DATA, 0, 1, saved, write_arrays(data, extra)))
