"""A choice of labels in a file: names or numbers, one per line."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.data.text import TextFile


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
    numbers: dict[str, list[int]] = {}
    for number, name in enumerate(names or ()):
        numbers.setdefault(name, []).append(number)
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
                received=repr(word[:60]),
            )
        chosen.update(found)
    if not chosen:
        raise InputError(f"{path} chooses no label", expected="a label's name or number on each line")
    return np.array(sorted(chosen), np.int64)
