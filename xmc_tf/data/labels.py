import logging
from pathlib import Path

from xmc_tf.common.errors import InputError
from xmc_tf.data.text import TextFile

_LOG = logging.getLogger(__name__)


def load_names(path: str | Path, count: int | None = None) -> list[str]:
    """Read label names: line i names column i of the label matrix."""
    lines = TextFile(path, name="label names").lines()
    if count is not None and len(lines) != count:
        raise InputError(
            f"label names: {path} does not fit the label matrix",
            expected=f"{count:,} lines, one for each label (column)",
            received=f"{len(lines):,} lines",
            fix="line i must name column i; a label without a document needs a line too",
        )
    names: list[str] = []
    first_line: dict[str, int] = {}
    doubles: list[tuple[str, int, int]] = []
    for number, line in enumerate(lines, start=1):
        try:
            name = line.decode("utf-8")
        except UnicodeDecodeError:
            raise InputError(
                f"label names: {path}, line {number:,} is not UTF-8",
                expected="text in UTF-8",
                received=repr(line[:60])[1:],
                fix="convert the file with iconv",
            ) from None
        if not name.strip():
            raise InputError(
                f"label names: {path}, line {number:,} is empty",
                expected="a name on each line",
                received="nothing" if not name else "only spaces",
                fix="give the label a name, its number for example",
            )
        if first_line.setdefault(name, number) != number:
            doubles.append((name, first_line[name], number))
        names.append(name)
    if doubles:
        _LOG.warning(
            "label names: %s: %s names occur more than once, the first is %r on lines %s and %s; "
            "predictions do not distinguish such labels",
            path, f"{len({double[0] for double in doubles}):,}", doubles[0][0], doubles[0][1], doubles[0][2],
        )  # fmt: skip
    return names
