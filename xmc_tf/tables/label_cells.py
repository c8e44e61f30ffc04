"""Split cells into labels, and remove the brackets and prefixes of file formats."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

SEPARATORS = ("\t", "|", ";", ",")
BRACKETS = "[]"
"""The separator of cells that are lists in Python or JSON syntax: ``['baking', 'bread']``."""
FASTTEXT = "__label__"
_LONGEST_LABEL = 200  # characters
_MOST_LONG = 0.02  # share of the parts of cells that may be longer, so that one odd cell does not decide
_PATH = re.compile(r"\S\s*(?:>|→|»)\s*\S")
_IN_BRACKETS = re.compile(r"""'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|([^,\[\]'"\s][^,\[\]]*)""")
_WHOLE = re.compile(r"-?\d+(\.0+)?")


def label_separator(cells: Sequence[str]) -> str:
    """Guess the separator of labels: a character that many cells contain and that splits them into label-like parts."""
    cells = [cell for cell in cells if cell.strip()]
    if cells and sum(cell.strip()[0] == "[" and cell.strip()[-1] == "]" for cell in cells) >= 0.9 * len(cells):
        return BRACKETS
    # Names in a category path may contain commas: "Clothing > Shirts, blouses".
    paths = sum(_PATH.search(cell) is not None for cell in cells) >= 0.5 * len(cells)
    for separator in SEPARATORS:
        if not (paths and separator == ",") and _separates(separator, cells):
            return separator
    words = [word for cell in cells for word in cell.split()]
    numbers = all(word.isascii() and word.isdecimal() for word in words)
    of_one_kind = numbers or all(word.startswith(FASTTEXT) for word in words)
    return " " if of_one_kind and any(len(cell.split()) > 1 for cell in cells) else ""


def _separates(separator: str, cells: Sequence[str]) -> bool:
    every = [part for cell in cells for part in cell.split(separator)]
    if sum(len(part) > _LONGEST_LABEL for part in every) > max(1, _MOST_LONG * len(every)):
        return False
    different = dict.fromkeys(cells)  # repeated cells tell nothing about their parts
    cut = [cell for cell in different if separator in cell]
    parts = [part for cell in different for part in labels_in(cell, separator)]
    if cut and separator == "\t":  # label names contain no tabs
        return True
    counts = Counter(parts)
    of_cut = [part for cell in cut for part in labels_in(cell, separator)]
    again = sum(counts[part] > 1 for part in of_cut) >= 0.5 * len(of_cut)
    # Names may contain commas ("Paris, France"). Only where parts occur in several cells do commas separate labels.
    if separator == "," and len(counts) > 0.9 * len(parts):
        return False
    return sum(separator in cell for cell in cells) >= max(2, (0.02 if again else 0.1) * len(cells))


def labels_in(text: str, separator: str) -> list[str]:
    """Split a cell into its distinct labels, in order. ``separator`` may be "" (one label) or `BRACKETS`."""
    if separator == BRACKETS and text.strip()[:1] == "[":
        found = ["".join(groups).replace("\\'", "'").replace('\\"', '"') for groups in _IN_BRACKETS.findall(text)]
    else:
        found = text.split(separator) if separator and separator != BRACKETS else [text]
    return list(dict.fromkeys(label for one in found if (label := one.strip().removeprefix(FASTTEXT))))


def are_whole_floats(labels: Iterable[str]) -> bool:
    """Return whether all labels are whole numbers, some written as 2580.0, as pandas does if a cell is empty."""
    found = list(labels)
    return all(_WHOLE.fullmatch(one) for one in found) and any("." in one for one in found)


def as_whole(label: str) -> str:
    """Convert "2580.0" to "2580", and return other labels unchanged."""
    return label.partition(".")[0] if _WHOLE.fullmatch(label) else label
