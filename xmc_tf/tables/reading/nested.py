"""Make columns of the parts of dictionaries, named as by pandas' json_normalize: ``doc.title``, ``labels[].name``."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from xmc_tf.tables.label_cells import is_record, parsed
from xmc_tf.tables.reading.records import BadRow, TableReader, TableRow

_SAMPLE = 1000  # rows in which the keys are looked for
_MOST_PARTS, _MOST_LEVELS = 100, 8  # of a column; one with more keys stays a column of dictionaries


def flattened(source: TableReader) -> TableReader:
    """Return the table with a column for each key of its dictionaries; a table without any is returned unchanged."""
    found = Flattened(source)
    return source if found.columns == list(source.columns) else found


class Flattened(TableReader):
    """A table whose cells are parts of the dictionaries of another one."""

    def __init__(self, source: TableReader) -> None:
        self.source = source
        self.name, self.kind, self.files = source.name, source.kind, source.files
        self.size, self.unit = source.size, source.unit
        self.header, self.header_is_guessed = source.header, source.header_is_guessed
        rows = [row.cells for row in islice(source.records(), _SAMPLE) if isinstance(row, TableRow)]
        self.columns: list[str] = []
        for at, name in enumerate(source.columns):
            parts = dict.fromkeys(part for row in rows for part in _parts(name, row[at]))
            self.columns += parts if 0 < len(parts) <= _MOST_PARTS else [name]

    def records(self) -> Iterator[TableRow | BadRow]:
        for row in self.source.records():
            if isinstance(row, TableRow):
                found = dict(zip(self.source.columns, row.cells, strict=True))
                # A dictionary in place of a value stays one, so that it is refused.
                found |= {part: value for name, cell in found.items() for part, value in _parts(name, cell).items()}
                row = row._replace(cells=[found.get(column) for column in self.columns])
            yield row

    def done(self) -> int:
        return self.source.done()


def _parts(name: str, value: Any, level: int = 0) -> dict[str, Any]:
    """Return the values in a cell by the names of their columns; none if it is empty."""
    if isinstance(value, str) and value[:1] in ("{", "[") and is_record(read := parsed(value), False):
        value = read
    if value is None or (isinstance(value, str | list | tuple | Mapping) and not value):
        return {}
    if level < _MOST_LEVELS and isinstance(value, Mapping):
        return {part: one for key in value for part, one in _parts(f"{name}.{key}", value[key], level + 1).items()}
    if level < _MOST_LEVELS and isinstance(value, list | tuple) and all(isinstance(one, Mapping) for one in value):
        found: dict[str, Any] = {}
        for one in value:
            for part, own in _parts(f"{name}[]", one, level + 1).items():
                found.setdefault(part, []).extend(own if isinstance(own, list | tuple) else [own])
        return found
    return {name: value}
