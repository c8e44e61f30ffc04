"""Convert the values of DataFrames, Series and arrays to Python objects."""

from collections.abc import Iterable, Mapping
from typing import Any

from scipy.sparse import issparse


def is_frame(value: Any) -> bool:
    """Return whether a value is a table with named columns."""
    if issparse(value):  # scipy's dok_matrix is a dictionary
        return False
    named = hasattr(value, "columns") or hasattr(value, "column_names")
    return isinstance(value, Mapping) or (named and (hasattr(value, "__getitem__") or hasattr(value, "to_numpy")))


def columns_of(table: Any) -> tuple[list[Any], list[Any]]:
    """Return the names and the columns of a table; several columns of pandas may have the same name."""
    if hasattr(table, "column_names"):  # PyArrow
        return list(table.column_names), list(table.columns)
    names = list(getattr(table, "columns", table))
    if hasattr(table, "iloc"):
        return names, [table.iloc[:, at] for at in range(len(names))]
    return names, [table[name] for name in names]


def as_columns(table: Any) -> Any:
    """Convert a list of dictionaries to a dictionary of columns, and collect a LazyFrame; keep other data unchanged."""
    if hasattr(table, "collect") and hasattr(table, "collect_schema"):  # Polars' LazyFrame
        return table.collect()
    if isinstance(table, list | tuple) and table and all(isinstance(row, Mapping) for row in table):
        keys = dict.fromkeys(key for row in table for key in row)
        return {key: [row.get(key) for row in table] for key in keys}
    return table


def is_listing(value: Any) -> bool:
    """Return whether a value is iterable but neither a text nor a mapping."""
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)


def listed(column: Any) -> Any:
    """Return a column as a list of Python values; if its library cannot convert it, return it unchanged."""
    for convert in ("to_pylist", "to_list", "tolist"):  # PyArrow; pandas and Polars; NumPy
        if hasattr(column, convert):
            return getattr(column, convert)()
    return column.to_numpy().tolist() if hasattr(column, "to_numpy") else column


def plain(value: Any) -> Any:
    """Return a cell as a Python value, or None if the cell is missing."""
    if value is None or isinstance(value, str | bytes | list | tuple):
        return value
    if isinstance(value, set | frozenset):  # whose order differs between runs
        return sorted(value, key=repr)
    if hasattr(value, "as_py"):
        value = value.as_py()
    if hasattr(value, "tolist"):
        value = value.tolist()
    elif hasattr(value, "to_list"):
        value = value.to_list()
    if value is None or isinstance(value, str | list | tuple):
        return value
    # pandas' NA is neither equal to itself nor different from itself.
    return None if str(value) in ("<NA>", "NaT") or value != value else value
