"""Make columns of the parts of dictionaries, named as by pandas' json_normalize: ``doc.title``, ``labels[].name``."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias

from xmc_tf.tables.label_cells import is_record, parsed
from xmc_tf.tables.reading.records import BadRow, TableReader, TableRow

_SAMPLE = 1000  # rows in which the keys are looked for
_MOST_PARTS, _MOST_LEVELS = 100, 8  # of a column; one with more keys stays a column of dictionaries
_EACH = None  # step to the elements of a list

_Path: TypeAlias = tuple[Any, ...]


def flattened(source: TableReader) -> TableReader:
    """Return the table with a column for each key of its dictionaries; a table without any is returned unchanged."""
    rows = [row.cells for row in islice(source.records(), _SAMPLE) if isinstance(row, TableRow)]
    found = [_parts_of([row[at] for row in rows]) for at in range(len(source.columns))]
    return source if all(paths == [()] for paths, _ in found) else Flattened(source, found)


class Flattened(TableReader):
    """A table whose cells are parts of the dictionaries of another one."""

    def __init__(self, source: TableReader, parts: Sequence[tuple[list[_Path], bool]]) -> None:
        self.source = source
        self.name, self.kind, self.files = source.name, source.kind, source.files
        self.size, self.unit = source.size, source.unit
        self.header, self.header_is_guessed = source.header, source.header_is_guessed
        self._parts: dict[str, tuple[int, _Path]] = {}
        self._as_text = [at for at, (_, as_text) in enumerate(parts) if as_text]
        for at, (paths, _) in enumerate(parts):
            for path in paths:
                steps = "".join("[]" if step is _EACH else f".{step}" for step in path)
                self._parts.setdefault(source.columns[at] + steps, (at, path))
        self.columns = list(self._parts)

    def records(self) -> Iterator[TableRow | BadRow]:
        for row in self.source.records():
            if isinstance(row, TableRow):
                cells = list(row.cells)
                for at in self._as_text:
                    cells[at] = parsed(cells[at]) if isinstance(cells[at], str) else cells[at]
                row = row._replace(cells=[_part(cells[at], path) for at, path in self._parts.values()])
            yield row

    def done(self) -> int:
        return self.source.done()


def _parts_of(cells: Iterable[Any]) -> tuple[list[_Path], bool]:
    """Return the paths to the parts of a column's dictionaries, and whether these are written as texts."""
    cells = [cell for cell in cells if not _is_empty(cell)]
    as_text = bool(cells) and all(isinstance(cell, str) and cell.lstrip()[:1] in ("[", "{") for cell in cells)
    if as_text:
        cells = [parsed(cell) for cell in cells]
        as_text = any(is_record(cell, False) for cell in cells)
        if not as_text or not all(is_record(cell, False) or cell in ([], {}) for cell in cells):
            return [()], False
    found = dict.fromkeys(path for cell in cells for path in _paths(cell))
    lists: dict[_Path, _Path] = {}  # where there are lists, a dictionary stands for a list of one
    for path in found:
        keys = tuple(step for step in path if step is not _EACH)
        lists[keys] = max(lists.get(keys, path), path, key=len)
    few = 0 < len(lists) <= _MOST_PARTS
    return (list(lists.values()), as_text) if few else ([()], False)


def _paths(value: Any, level: int = 0) -> Iterator[_Path]:
    if level < _MOST_LEVELS and isinstance(value, Mapping):
        for key, one in value.items():
            for path in _paths(one, level + 1):
                yield (key, *path)
    elif level < _MOST_LEVELS and isinstance(value, list | tuple) and is_record(value, False):
        for one in value:
            for path in _paths(one, level + 1) if isinstance(one, Mapping) else ():
                yield (_EACH, *path)
    elif not _is_empty(value):
        yield ()


def _part(value: Any, path: _Path) -> Any:
    """Return a part of a cell: a value, a list of the values in a list of dictionaries, or None if it has none."""
    if not path or value is None:
        return value
    if path[0] is not _EACH:
        return _part(value.get(path[0]), path[1:]) if isinstance(value, Mapping) else _unless_plain(value)
    each = [value] if isinstance(value, Mapping) else value
    if not isinstance(each, list | tuple) or not all(isinstance(one, Mapping) for one in each):
        return _unless_plain(value)
    found: list[Any] = []
    for one in each:
        part = _part(one, path[1:])
        found.extend(part if isinstance(part, list | tuple) else [part])
    return found


def _unless_plain(value: Any) -> Any:
    """Return a value that is in place of a dictionary if it holds others, which are refused later; else None."""
    return value if is_record(value, False) else None


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str | list | tuple | Mapping) and not value)
