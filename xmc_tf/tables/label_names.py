"""Names of labels that a table holds as numbers or identifiers."""

from pathlib import Path

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.regular import existing_file
from xmc_tf.data.vocabularies import FORMATS, load_vocabulary
from xmc_tf.tables.reading.packed import opened
from xmc_tf.tables.reading.records import TableRow
from xmc_tf.tables.reading.structured import JsonLines

_TITLES = ("title", "name", "label")


def load_label_names(path: Path, language: str | None = None) -> dict[str, str]:
    """Return identifier → name, all different, from lines, JSON lines or a SKOS vocabulary."""
    existing_file(path, "label names")
    if path.suffix.lower() in FORMATS:
        return _distinct([(one.uri, one.names[0]) for one in load_vocabulary(path, language)], path)
    if language is not None:
        raise InputError(
            f"--names-language {language}: {path} is not a SKOS vocabulary",
            expected=f"a file that ends with {', '.join(FORMATS)}",
            fix="leave out --names-language",
        )
    with opened(path) as file:
        is_json = file.read(4096).lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"{")
    if is_json:
        source = JsonLines(path)
        key = next((name for name in _TITLES if name in source.columns), None)
        if key is None:
            raise InputError(f"{path} has no names", expected=" or ".join(_TITLES), received=", ".join(source.columns))
        at = source.columns.index(key)
        lines = [str(row.cells[at] or "") if isinstance(row, TableRow) else "" for row in source.records()]
    else:
        with opened(path) as file:
            lines = file.read().decode("utf-8-sig", "replace").splitlines()
    pairs = [line.split("\t", 1) for line in lines if line.strip()]
    if pairs and all(len(pair) == 2 and pair[0].strip() for pair in pairs) and not is_json:
        found = [(identifier.strip(), name) for identifier, name in pairs]
    else:
        found = [(str(number), line) for number, line in enumerate(lines)]
    return _distinct(found, path)


def _distinct(found: list[tuple[str, str]], path: Path) -> dict[str, str]:
    seen: set[str] = set()
    names: dict[str, str] = {}
    for identifier, name in found:
        one = " ".join(name.split())
        if not one or one in seen:
            one = f"{one} ({identifier})".strip()
        if identifier in names:
            raise InputError(f"{path} names {identifier!r} twice"[:120], expected="one line for each label")
        names[identifier] = one
        seen.add(one)
    return names
