"""The rows that every kind of table yields: records, and rows that cannot be read."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple


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


class TableReader(ABC):
    """A table that is read from its beginning to its end.

    Attributes:
        name: the file, for messages.
        kind: such as "CSV, separated by semicolons, in UTF-8".
        columns: names of the columns.
        size: amount of work to read it, in units of ``unit``.
        unit: "MB", or what is counted, such as "rows".
        read: number of rows that have been read, or of bytes if the unit is "MB".
        nr_features: number of features, if rows have features instead of texts.
        nr_labels: number of labels of such a table.
        in_test: whether the rows that are read now are test documents.
        header_is_guessed: whether it was not known whether the first row has the names of the columns.
        header: whether it has.
    """

    name: str
    kind: str
    columns: list[str]
    size: int
    unit = "rows"
    read = 0
    nr_features = nr_labels = 0
    in_test = header_is_guessed = False
    header = True

    @abstractmethod
    def records(self) -> Iterator[TableRow | BadRow]:
        """Yield all rows, in their order; each call starts again."""

    def done(self) -> int:
        """Return how many of the ``size`` units have been read."""
        return self.read >> 20 if self.unit == "MB" else self.read
