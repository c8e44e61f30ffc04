"""Rows of tables of any kind."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple


class TableRow(NamedTuple):
    """One row of a table."""

    line: int
    cells: list[Any]


class BadRow(NamedTuple):
    """A row that cannot be used."""

    line: int
    reason: str
    start: str


class TableReader(ABC):
    """A table that is read from beginning to end."""

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
        """Yield all rows in their order; each call starts again."""

    def done(self) -> int:
        """Return how many of the ``size`` units have been read."""
        return self.read >> 20 if self.unit == "MB" else self.read
