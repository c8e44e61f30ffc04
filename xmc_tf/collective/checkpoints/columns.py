"""Tables that are divided by columns: each part is saved as a table ``name[first:stop]``, and any cut can be loaded."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from xmc_tf.collective.checkpoints.manifest import SavedTable
from xmc_tf.collective.tables.row_access import SomeRows, get_rows, set_rows


class ColumnRange(NamedTuple):
    """Some columns of a table.

    Args:
        table: the name of the whole table.
        start: the first column.
        stop: the column after the last.
    """

    table: str
    start: int
    stop: int


def columns_of(name: str, dim: int) -> ColumnRange:
    """Return the columns that a saved table, or one of a model, has of the whole table.

    Example:
        >>> columns_of("users[8:16]", 8)
        ColumnRange(table='users', start=8, stop=16)

    Args:
        name: its name.
        dim: its width.
    """
    found = re.fullmatch(r"(.*)\[(\d+):(\d+)\]", name)
    if found and int(found[3]) - int(found[2]) == dim:
        return ColumnRange(found[1], int(found[2]), int(found[3]))
    return ColumnRange(name, 0, dim)


def parts_of(tables: Mapping[str, SavedTable], table: str) -> list[tuple[ColumnRange, SavedTable]]:
    """Return the saved parts of a whole table, by their first column."""
    parts = [(columns_of(name, saved.dim), saved) for name, saved in tables.items()]
    return sorted((one for one in parts if one[0].table == table), key=lambda one: one[0].start)


def covering_parts(
    parts: Sequence[tuple[ColumnRange, SavedTable]], wanted: ColumnRange
) -> list[tuple[ColumnRange, SavedTable]]:
    """Return the parts that together have the wanted columns, or nothing if some columns are missing."""
    at, found = wanted.start, []
    for columns, saved in parts:
        if columns.start <= at < min(columns.stop, wanted.stop):
            found.append((columns, saved))
            at = columns.stop
    return found if at >= wanted.stop else []


def column_writer(
    variable: tf.Variable | SomeRows, offset: int, wanted: ColumnRange, saved: ColumnRange
) -> Callable[[int, np.ndarray], None]:
    """Return a function that writes rows with the saved columns into a variable that has the wanted ones.

    Args:
        variable: the variable.
        offset: the number of its first row in the whole table.
        wanted: its columns.
        saved: the columns of the rows that are written.
    """
    low, high = max(wanted.start, saved.start), min(wanted.stop, saved.stop)

    def write(start: int, rows: np.ndarray) -> None:
        part = rows[:, low - saved.start : high - saved.start]
        if (low, high) != (wanted.start, wanted.stop):
            whole = get_rows(variable, start - offset, start - offset + len(rows)).numpy()
            whole[:, low - wanted.start : high - wanted.start] = part
            part = whole
        set_rows(variable, start - offset, part)

    return write
