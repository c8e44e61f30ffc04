"""Choice of labels by name or number, by a caller or in a file."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.data.text import TextFile

_SHOWN = 60  # characters


def chosen_labels(labels: Iterable[str | int], names: Sequence[str] | None, nr_labels: int) -> np.ndarray:
    """Return the numbers of the labels that are chosen by name or by number (from 0), ascending."""
    if isinstance(labels, str):
        labels = [labels]
    numbers = _numbers_of(names)
    chosen: set[int] = set()
    for label in labels:
        found = numbers.get(label) if isinstance(label, str) else None
        if isinstance(label, int | np.integer) and not isinstance(label, bool) and 0 <= label < nr_labels:
            found = [int(label)]
        if found is None:
            raise InputError(
                f"label {str(label)[:_SHOWN]!r} does not exist in this model",
                expected=("a label's name, or " if names else "") + f"a number from 0 to {nr_labels - 1:,}",
                received=repr(label)[:_SHOWN],
            )
        chosen.update(found)
    if not chosen:
        raise InputError("no labels are given to predict", expected="a label's name or number")
    return np.array(sorted(chosen), np.int64)


def load_label_choice(path: str | Path, names: Sequence[str] | None, nr_labels: int) -> np.ndarray:
    """Return the numbers of the labels chosen in a file with one name or number per line, ascending."""
    numbers = _numbers_of(names)
    chosen: set[int] = set()
    for line, text in enumerate(TextFile(path, name="labels to predict"), start=1):
        word = text.strip()
        if not word:
            continue
        found = numbers.get(text) or numbers.get(word)
        if found is None and word.isascii() and word.isdigit() and len(word) < 19 and int(word) < nr_labels:
            found = [int(word)]
        if found is None:
            raise InputError(
                f"{path}, line {line:,}: not a label of this model",
                expected=("a label's name, or " if names else "") + f"a number from 0 to {nr_labels - 1:,}",
                received=repr(word[:_SHOWN]),
            )
        chosen.update(found)
    if not chosen:
        raise InputError(f"{path} chooses no label", expected="a label's name or number on each line")
    return np.array(sorted(chosen), np.int64)


def _numbers_of(names: Sequence[str] | None) -> dict[str, list[int]]:
    """Return the numbers of the labels of each name."""
    numbers: dict[str, list[int]] = {}
    for number, name in enumerate(names or ()):
        numbers.setdefault(name, []).append(number)
    return numbers
