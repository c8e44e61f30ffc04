"""Rows of tables, and the base class of all table readers."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from xmc_tf.common.errors import InputError


class TableRow(NamedTuple):
    line: int  # the first line in the file, from 1; in formats without lines, the number of the row
    cells: list[Any]  # one value per column; a cell of labels may hold a list
    row: int | None = None  # its number in a spreadsheet, if cells with line breaks before it make that differ

    @property
    def place(self) -> str:
        """The name of the row, for people who look for it in an editor or in a spreadsheet."""
        return f"line {self.line}" if self.row is None else f"row {self.row} (line {self.line})"


class BadRow(NamedTuple):
    """A row that cannot be used, and the reason."""

    line: int
    reason: str
    start: str  # of the row


class TableReader(ABC):
    """The base class of table readers, which read a table from beginning to end."""

    name: str
    kind: str  # for messages, such as "UTF-8, separated by semicolons"
    columns: Sequence[str]
    files: Sequence[Path] = ()  # all files that are read; none: only its rows tell what a table contains
    size: int  # in units of ``unit``
    unit = "rows"  # or other things that are counted, or "MB"
    read = 0  # number of units, or of bytes if the unit is "MB"
    nr_features = nr_labels = 0  # if rows have features instead of texts
    in_test = False  # the current rows are test documents
    header_is_guessed = False
    header = True  # the first row holds the names of the columns

    @abstractmethod
    def records(self) -> Iterator[TableRow | BadRow]:
        """Yield all rows in order; each call starts from the beginning."""

    @property
    def parts(self) -> "Sequence[TableReader]":
        """The tables that are read one after the other."""
        return (self,)

    @property
    def label_names(self) -> Mapping[str, str]:
        """The name of each label, if the table has both identifiers and names."""
        return {}

    def done(self) -> int:
        """Return how much has been read, in the same units as ``size``."""
        return self.read >> 20 if self.unit == "MB" else self.read


class TwoTables(TableReader):
    """Two tables with the same columns, read one after the other; the second holds the test documents."""

    def __init__(self, first: TableReader, test: TableReader) -> None:
        if list(first.columns) != list(test.columns):
            raise InputError(
                f"{test.name} and {first.name} have different columns", expected=", ".join(first.columns[:20]),
                received=", ".join(test.columns[:20]), fix="use the same columns in both tables",
            )  # fmt: skip
        self._parts, self.in_test = (first, test), False
        self.name, self.columns = first.name, first.columns
        self.kind = first.kind if first.kind == test.kind else f"{first.kind}; the test table is {test.kind}"
        self.size, self.unit = first.size + test.size, first.unit
        sizes = [(one.nr_features, one.nr_labels) for one in self._parts]
        if sizes[0] != sizes[1]:
            raise InputError(
                f"{test.name} does not fit {first.name}", expected=f"{sizes[0][0]:,} features, {sizes[0][1]:,} labels",
                received=f"{sizes[1][0]:,} and {sizes[1][1]:,}",
            )  # fmt: skip
        self.nr_features = sizes[0][0]

    @property
    def parts(self) -> Sequence[TableReader]:
        return self._parts

    def records(self) -> Iterator[TableRow | BadRow]:
        self.in_test = False
        yield from self._parts[0].records()
        self.in_test = True
        yield from self._parts[1].records()

    @property
    def label_names(self) -> Mapping[str, str]:
        first, test = self._parts
        return {**test.label_names, **first.label_names}

    def done(self) -> int:
        return sum(part.done() for part in self._parts)
