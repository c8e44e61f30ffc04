"""Read label names, and select labels by name or number."""

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.data.text import TextFile

_LOG = logging.getLogger(__name__)
_SHOWN = 60  # characters of a label in messages


def load_names(path: str | Path, count: int | None = None) -> list[str]:
    """Read label names: line i names column i of the label matrix."""
    lines = TextFile(path, name="label names").lines()
    if count is not None and len(lines) != count:
        raise InputError(
            f"label names: {path} does not fit the label matrix",
            expected=f"{count:,} lines, one for each label (column)",
            received=f"{len(lines):,} lines",
            fix="write one line per column, in order, also for labels without documents",
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
                received=repr(line[:_SHOWN])[1:],
                fix="convert the file with iconv",
            ) from None
        if not name.strip():
            raise InputError(
                f"label names: {path}, line {number:,} is empty",
                expected="a name on each line",
                received="nothing" if not name else "only spaces",
                fix="give the label a name, for example its number",
            )
        if first_line.setdefault(name, number) != number:
            doubles.append((name, first_line[name], number))
        names.append(name)
    if doubles:
        _LOG.warning(
            "label names: %s: %s names occur more than once, the first is %r on lines %s and %s; "
            "predictions do not distinguish such labels",
            path, f"{len({double[0] for double in doubles}):,}", *doubles[0],
        )  # fmt: skip
    return names


def chosen_labels(labels: Iterable[str | int], names: Sequence[str] | None, nr_labels: int) -> np.ndarray:
    """Return the numbers of the chosen labels in ascending order. Each is chosen by name or by number (from 0)."""
    numbers = numbers_by_name(names)
    chosen: set[int] = set()
    for label in [labels] if isinstance(labels, str) else labels:
        found = numbers.get(label) if isinstance(label, str) else None
        if isinstance(label, int | np.integer) and not isinstance(label, bool) and 0 <= label < nr_labels:
            found = [int(label)]
        if found is None:
            what = f"label {str(label)[:_SHOWN]!r} does not exist in this model"
            raise _unknown(what, names, nr_labels, repr(label)[:_SHOWN])
        chosen.update(found)
    if not chosen:
        raise InputError("the list of labels to predict is empty", expected="at least one label name or number")
    return np.array(sorted(chosen), np.int64)


def load_label_choice(path: str | Path, names: Sequence[str] | None, nr_labels: int) -> np.ndarray:
    """Read a file with one label name or number per line; return the label numbers in ascending order."""
    numbers = numbers_by_name(names)
    chosen: set[int] = set()
    for line, text in enumerate(TextFile(path, name="labels to predict"), start=1):
        word = text.strip()
        if not word:
            continue
        found = numbers.get(text) or numbers.get(word)
        if found is None and word.isascii() and word.isdigit() and len(word) < 19 and int(word) < nr_labels:
            found = [int(word)]
        if found is None:
            what = f"{path}, line {line:,}: not a label of this model"
            raise _unknown(what, names, nr_labels, repr(word[:_SHOWN]))
        chosen.update(found)
    if not chosen:
        raise InputError(f"{path} contains no labels", expected="a label name or number on each line")
    return np.array(sorted(chosen), np.int64)


def numbers_by_name(names: Sequence[str] | None) -> dict[str, list[int]]:
    """Map each name to the numbers of the labels that have it."""
    numbers: dict[str, list[int]] = {}
    for number, name in enumerate(names or ()):
        numbers.setdefault(name, []).append(number)
    return numbers


def _unknown(what: str, names: Sequence[str] | None, nr_labels: int, received: str) -> InputError:
    name = "a label's name, or " if names else ""
    return InputError(what, expected=f"{name}a number from 0 to {nr_labels - 1:,}", received=received)
