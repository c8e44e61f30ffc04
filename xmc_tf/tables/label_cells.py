"""Split cells into labels, and remove the brackets and prefixes of file formats."""

import ast
import json
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

_COMMAS = (",", "，", "、", "،")  # of Latin, Chinese, Japanese and Arabic texts
SEPARATORS = ("\n", "\t", "|", ";", "；", "؛", *_COMMAS)
BRACKETS = "[]"
"""The separator of cells that are lists in Python or JSON syntax: ``['baking', 'bread']``."""
FASTTEXT = "__label__"
_LONGEST_LABEL = 200  # characters
_MOST_LONG = 0.02  # share of the parts of cells that may be longer, so that one odd cell does not decide
_PATH = re.compile(r"\S\s*(?:>|→|»)\s*\S")
_FEW, _USUAL_LENGTH = 30, 40  # rows, among which labels seldom occur again; characters of a usual label
_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
# Tuples and sets only of quoted labels: (baking) may be a label.
_LIST = re.compile(rf"\s*(?:\[.*\]|\(\s*(?:{_QUOTED}).*\)|\{{\s*(?:{_QUOTED}).*\}})\s*", re.DOTALL)
_IN_LIST = re.compile(rf"""[uUbB]?({_QUOTED})|([^,\[\]'"\s][^,\[\]]*)""", re.DOTALL)
_OF_NUMPY = re.compile(rf"\bnp\.\w+\(({_QUOTED}|[^()]*)\)", re.DOTALL)  # [np.str_('baking')], [np.int64(3)]
_RECORD = re.compile(rf"\s*[\[(]?\s*\{{\s*(?:{_QUOTED})\s*:", re.DOTALL)
_MISSING = ("None", "null", "nan", "NaN")
NA_LABELS = frozenset(("nan", "none", "null", "n/a", "#n/a", "<na>", "-"))
"""What programs write for a missing value, in lower case: no labels, unless the user wants to keep them."""
USUAL_UNLABELLED = 0.1
"""Share of documents that may lack labels without a warning."""
_LEAST_TOGETHER, _TOGETHER, _LEAST_PAIRS = 3, 0.1, 3  # cells, share of the parts, pairs of parts that never occur apart
_WHOLE = re.compile(r"-?\d+(\.0+)?")


def label_separator(cells: Sequence[str]) -> str:
    """Guess the separator of labels: a character that many cells contain and that splits them into label-like parts."""
    cells = [cell for cell in cells if cell.strip()]
    lists = sum(_LIST.fullmatch(cell) is not None for cell in cells)
    # A single label may stand without brackets.
    several = sum(any(comma in cell for comma in _COMMAS) for cell in cells)
    if cells and lists and lists >= 0.9 * (several if lists > 1 and several > 1 else len(cells)):
        return BRACKETS
    # Names in a category path may contain commas: "Clothing > Shirts, blouses".
    paths = sum(_PATH.search(cell) is not None for cell in cells) >= 0.5 * len(cells)
    for separator in SEPARATORS:
        if not (paths and separator in _COMMAS) and _separates(separator, cells):
            return separator
    words = [word for cell in cells for word in cell.split()]
    numbers = all(word.isascii() and word.isdecimal() for word in words)
    of_one_kind = numbers or all(word.startswith(FASTTEXT) for word in words)
    return " " if of_one_kind and any(len(cell.split()) > 1 for cell in cells) else ""


def apart_sentence(cells: Sequence[str], separator: str, flag: str) -> str:
    """Return a sentence on labels that a separator cuts, because they contain it; "" if there are none."""
    if not (found := inseparable(cells, separator) if separator in _COMMAS else []):
        return ""
    shown = ", ".join(repr(f"{first}{separator} {second}") for first, second in found[:3])
    return (
        f"{separator!r} seems to be a part of labels: these parts never occur apart: {shown}; if so, write labels with "
        f"another separator or as JSON lists ({flag})"
    )


def inseparable(cells: Sequence[str], separator: str) -> list[tuple[str, str]]:
    """Return the pairs of neighbouring parts of cells that never occur apart; none if they are few."""
    parts, pairs = Counter[str](), Counter[tuple[str, str]]()
    for cell in dict.fromkeys(cells):
        found = labels_in(cell, separator)
        parts.update(found)
        pairs.update(pairwise(found))
    often = sum(count >= _LEAST_TOGETHER for count in parts.values())
    glued = [
        (first, second) for (first, second), count in pairs.most_common()
        if count >= _LEAST_TOGETHER and parts[first] == parts[second] == count
    ]  # fmt: skip
    return glued if len(glued) >= max(_LEAST_PAIRS, _TOGETHER * often / 2) else []


def folded(label: str) -> str:
    """Return what labels share that differ only in case or blanks."""
    return " ".join(label.casefold().split())


def spellings(labels: Iterable[str]) -> dict[str, str]:
    """Return the most frequent spelling of labels that differ only in case or blanks, by what they share."""
    counts = Counter(labels)
    found: dict[str, str] = {}
    for label in counts:  # in the order of the rows, so that the first of equally frequent ones is taken
        best = found.setdefault(folded(label), label)
        if counts[label] > counts[best]:
            found[folded(label)] = label
    return found


def twins_sentence(names: Sequence[str], fold: str) -> str:
    """Return a sentence on labels that differ only in case or blanks; "" if there are none."""
    first: dict[str, str] = {}
    alike = [(first[key], name) for name in names if first.setdefault(key := folded(name), name) != name]
    if not alike:
        return ""
    return (
        f"{len(alike):,} of {len(names):,} labels differ from another one only in case or blanks, such as "
        f"{alike[0][0]!r} and {alike[0][1]!r}, and are trained as different labels; {fold} trains them as one"
    )


def _separates(separator: str, cells: Sequence[str]) -> bool:
    every = [part for cell in cells for part in cell.split(separator)]
    if sum(len(part) > _LONGEST_LABEL for part in every) > max(1, _MOST_LONG * len(every)):
        return False
    different = dict.fromkeys(cells)  # repeated cells tell nothing about their parts
    cut = [cell for cell in different if separator in cell]
    parts = [part for cell in different for part in labels_in(cell, separator)]
    if cut and separator in ("\n", "\t"):  # which label names do not contain
        return True
    counts = Counter(parts)
    of_cut = [part for cell in cut for part in labels_in(cell, separator)]
    again = sum(counts[part] > 1 for part in of_cut) >= 0.5 * len(of_cut)
    lists = len(cells) <= _FEW and _look_like_lists([labels_in(cell, separator) for cell in cut])
    # Names may contain commas ("Paris, France"). Where parts occur in several cells, commas separate labels.
    if separator in _COMMAS and len(counts) > 0.9 * len(parts) and not lists:
        return False
    least = 1 if lists and len(cut) == 1 and len(of_cut) > 2 else 2
    return sum(separator in cell for cell in cells) >= max(least, (0.02 if again else 0.1) * len(cells))


def _look_like_lists(cells: Sequence[Sequence[str]]) -> bool:
    """Judge the parts of a few cells by their form: short, and either three or more, or all in lower case."""
    parts = [part for cell in cells for part in cell]
    if any(len(part.split()) > 3 or len(part) > _USUAL_LENGTH for part in parts):
        return False
    return 2 * sum(len(cell) > 2 for cell in cells) >= len(cells) or all(part[0].islower() for part in parts)


def separator_sentence(cells: Sequence[str], separator: str, flag: str) -> str:
    """Return a sentence on the guess of `label_separator`; "" if there was nothing to choose between."""
    if separator:
        how = "are a list in brackets" if separator == BRACKETS else f"are separated by {separator!r}"
        return f"labels of a cell {how} ({flag})"
    for one in SEPARATORS if len(cells) <= _FEW else ():
        if count := sum(one in cell for cell in cells):
            return f"each cell is one label, although {count:,} of {len(cells):,} contain {one!r} ({flag})"
    return ""


def labels_in(text: str, separator: str) -> list[str]:
    """Split a cell into its distinct labels, in order. ``separator`` may be "" (one label) or `BRACKETS`."""
    if separator == BRACKETS and _LIST.fullmatch(text):
        tokens = _IN_LIST.findall(_OF_NUMPY.sub(r"\1", text.strip()[1:-1]))
        found = [_unquoted(one) if one else bare for one, bare in tokens if bare.strip() not in _MISSING]
    else:
        found = text.split(separator) if separator and separator != BRACKETS else [text]
    return list(dict.fromkeys(label for one in found if (label := one.strip().removeprefix(FASTTEXT))))


def _unquoted(token: str) -> str:
    """Return the text of a quoted string in JSON or Python syntax, whose escapes may have been damaged."""
    if "\\" not in token:
        return token[1:-1]
    if (found := _read(token)) is None:
        found = token[1:-1].replace("\\'", "'").replace('\\"', '"')
    # Python writes a character beyond U+FFFF as one escape, JSON as two, of which one may be missing.
    return str(found).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def parsed(text: str) -> Any:
    """Return the list or dictionary that a text holds in JSON or Python syntax; None if it holds neither."""
    found = _read(text.strip()) if text.lstrip()[:1] in ("[", "{") else None
    return found if isinstance(found, list | dict) else None


def _read(text: str) -> Any:
    """Return the value that a text holds in JSON or Python syntax; None if it holds none."""
    for read in (json.loads, ast.literal_eval):
        try:
            with warnings.catch_warnings(action="ignore"):  # of unknown escapes
                return read(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return None


def is_record(value: Any, of_labels: bool) -> bool:
    """Return whether a cell holds a dictionary or, if it should hold labels, lists or a dictionary as text."""
    if isinstance(value, str):
        return of_labels and _RECORD.match(value) is not None
    if isinstance(value, list | tuple):
        return any(is_record(one, of_labels) or (of_labels and isinstance(one, list | tuple)) for one in value)
    return isinstance(value, Mapping)


def are_whole_floats(labels: Iterable[str]) -> bool:
    """Return whether all labels are whole numbers, some written as 2580.0, as pandas does if a cell is empty."""
    found = list(labels)
    return all(_WHOLE.fullmatch(one) for one in found) and any("." in one for one in found)


def as_whole(label: str) -> str:
    """Convert "2580.0" to "2580", and return other labels unchanged."""
    return label.partition(".")[0] if _WHOLE.fullmatch(label) else label
