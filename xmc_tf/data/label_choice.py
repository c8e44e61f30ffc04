"""A choice of labels, by names or numbers: of a caller, or in a file with one per line."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.data.text import TextFile

_SHOWN = 60  # characters


def chosen_labels(labels: Iterable[str | int], names: Sequence[str] | None, nr_labels: int) -> np.ndarray:
    """Return the numbers of labels that are chosen by name or number, ascending.

    Example:
        >>> chosen_labels(["baking", 2], ["baking", "bread", "gardening"], 3).tolist()
        [0, 2]

    Args:
        labels: names or numbers, counted from 0.
        names: the names of all labels; None if they have none.
        nr_labels: number of labels.

    Raises:
        InputError: a label does not exist, or none is chosen.
    """
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
    """Read the labels chosen in a file.

    A line that is the name of a label chooses every label of that name; any other line must be a label's number,
    counted from 0. Empty lines are skipped.

    Example:
        >>> model.set_output_constraint(load_label_choice("allowed.txt", model.names, model.nr_labels))

    Args:
        path: a text file in UTF-8.
        names: the names of all labels; None if they have none.
        nr_labels: number of labels.

    Returns:
        The numbers of the chosen labels, ascending.

    Raises:
        InputError: a line is neither a name nor a number, or the file chooses no label.
    """
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
