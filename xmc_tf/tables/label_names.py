"""Names of labels that a table holds as numbers."""

from pathlib import Path

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.regular import existing_file
from xmc_tf.tables.reading.packed import opened
from xmc_tf.tables.reading.records import Record
from xmc_tf.tables.reading.structured import JsonLines

_TITLES = ("title", "name", "label")


def load_label_names(path: Path) -> list[str]:
    """Return the names in the order of the labels: one per line, or JSON lines with ``title``, ``name`` or ``label``.

    A name that occurs again gets the number of its label, so that all names differ.

    Args:
        path: the file; it may be packed by gzip.
    """
    existing_file(path, "label names")
    with opened(path) as file:
        is_json = file.read(4096).lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"{")
    if is_json:
        source = JsonLines(path)
        key = next((name for name in _TITLES if name in source.columns), None)
        if key is None:
            raise InputError(f"{path} has no names", expected=" or ".join(_TITLES), received=", ".join(source.columns))
        at = source.columns.index(key)
        names = [str(row.cells[at] or "") if isinstance(row, Record) else "" for row in source.records()]
    else:
        with opened(path) as file:
            names = file.read().decode("utf-8-sig", "replace").splitlines()
    seen: set[str] = set()
    for number, name in enumerate(names):
        one = " ".join(name.split())
        if not one or one in seen:
            one = f"{one} ({number})".strip()
        names[number] = one
        seen.add(one)
    return names
