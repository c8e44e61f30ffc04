"""The rows that every kind of table yields: records, and rows that cannot be read."""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol


class TableRow(NamedTuple):
    """One row of a table.

    Attributes:
        line: number of its first line in the file, from 1; in formats without lines, the number of the row.
        cells: one value per column; a cell of labels may hold a list.
    """

    line: int
    cells: list[Any]


class BadRow(NamedTuple):
    """A row that cannot be used.

    Attributes:
        line: as for :class:`TableRow`.
        reason: what is wrong with it, in a few words.
        start: how the row begins.
    """

    line: int
    reason: str
    start: str


class TableReader(Protocol):
    """A table that is read from its beginning to its end.

    Attributes:
        name: the file, for messages.
        kind: such as "CSV, separated by semicolons, in UTF-8".
        columns: names of the columns.
        size: amount of work to read it, in units of ``unit``.
        unit: such as "MB" or "rows".
    """

    name: str
    kind: str
    columns: list[str]
    size: int
    unit: str

    def records(self) -> Iterator[TableRow | BadRow]:
        """Yield all rows, in their order; each call starts again."""
        ...

    def done(self) -> int:
        """Return how many of the ``size`` units have been read."""
        ...
