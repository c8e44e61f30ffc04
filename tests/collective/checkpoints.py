"""Checkpoints of tables whose values show their position, saved and loaded by ranks that are threads."""

import json

import numpy as np

from tests.collective.threads import on_ranks, results_of
from xmc_tf.collective.checkpoints.checkpoint import load_tables, save_tables
from xmc_tf.collective.tables.table import make_table
from xmc_tf.common.errors import InputError
from xmc_tf.ranks.partition import even_rows
from xmc_tf.store.checksums import checksum_of


def whole(rows, dim, offset=0.0):
    """Return values that show their position."""
    return np.arange(rows * dim, dtype=np.float32).reshape(rows, dim) + np.float32(offset)


def trained(communicator, rows=23, dim=3, name="items", partition=None):
    """Return this rank's part of a table with known rows and slots."""
    partition = even_rows(rows, communicator.size) if partition is None else partition
    table = make_table(name, rows, dim, rank=communicator.rank, partition=partition, initializer=whole(rows, dim))
    low, high = partition.bounds[communicator.rank : communicator.rank + 2]
    for slot, offset in (("m", 0.25), ("v", 0.5)):
        table.slot(slot).assign(whole(rows, dim, offset)[low:high])
    return table


def empty(communicator, rows=23, dim=3, name="items", partition=None):
    """Return this rank's part of the same table, filled with zeros."""
    partition = even_rows(rows, communicator.size) if partition is None else partition
    return make_table(name, rows, dim, rank=communicator.rank, partition=partition, initializer="zeros")


def save(folder, size=3, rows=23, partition=None, extra=None, step=7, **more):
    results_of(
        on_ranks(
            size,
            lambda communicator: save_tables(
                folder, [trained(communicator, rows, partition=partition, **more)], communicator, extra, step
            ),
        )
    )


def load(folder, size=2, rows=23, partition=None, **options):
    """Return the loaded tables of all ranks, and the replicated arrays of rank 0."""

    def work(communicator):
        table = empty(communicator, rows, partition=partition)
        return table, load_tables(folder, [table], communicator, **options)

    results = results_of(on_ranks(size, work))
    return [table for table, _ in results], results[0][1]


def stacked(tables, slot=None):
    return np.concatenate([(table.slots[slot] if slot else table.variable).numpy() for table in tables])


def refused(folder, size=2, rows=23, name="items", dim=3, slots=True):
    """Return the error message of the load, which is the same on all ranks."""

    def work(communicator):
        load_tables(folder, [empty(communicator, rows, dim, name)], communicator, slots=slots)

    results = on_ranks(size, work)
    assert all(isinstance(result, InputError) for result in results), results
    assert len({str(result) for result in results}) == 1
    return str(results[0])


def rewrite(folder, change, checksum=True):
    """Change the manifest and, unless told otherwise, its checksum."""
    content = json.loads((folder / "manifest.json").read_text())
    change(content)
    if checksum:
        content["checksum"] = checksum_of(content)
    (folder / "manifest.json").write_text(json.dumps(content))
