"""The labels of a documented object, which come from the code around its docstring, never from its text."""

import re
from collections import Counter
from collections.abc import Sequence

from xmc_tf.demo.sources import DocumentedObject

# Maximum number of labels per category, in the order in which a document's labels are chosen.
_MOST = {"module": 1, "about": 3, "takes": 2, "package": 1, "extends": 1, "kind": 1}
MOST_LABELS = 8

# Folders whose names mean nothing to a reader.
_STRUCTURE = {"python", "src", "core", "lib", "hl", "main", "init"}
_HUMPS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
# Words of identifiers that name no subject.
_EMPTY = frozenset(
    re.findall(
        r"\w+",
        """
        abstract all and any are arg args base can class core default for from func function generic get has
        have helper impl into internal its kwargs main method mixin module name names new non not obj object
        old one only per pre set that the this two type types use used using util utils value values via was with
        """,
    )
)


def candidates(entry: DocumentedObject) -> list[str]:
    """Return all labels that fit an object, best first within each category."""
    place = [part.strip("_") for part in entry.module.split(".")]
    place = [part for number, part in enumerate(place) if number == 0 or (part and part not in _STRUCTURE)]
    found = [f"package: {'.'.join(place[:depth])}" for depth in range(min(len(place) - 1, 3), 0, -1)]
    if len(place) > 1:
        found.append(f"module: {'.'.join(place)}")
    found += [f"about: {word}" for word in name_words(entry.name)]
    # A method is also about its class, but less.
    found += [f"about: {word}" for word in name_words(entry.owner)]
    found += [f"takes: {name}" for name in entry.parameters if len(name) > 2 and not name.startswith("_")]
    found += [f"extends: {base.lstrip('_')}" for base in entry.bases if base.strip("_") not in ("object", "")]
    found.append(f"kind: {entry.kind}")
    return list(dict.fromkeys(found))


def name_words(name: str) -> list[str]:
    """Return the meaningful words of an identifier, in lower case and as singulars."""
    words = [word.lower() for part in name.split("_") for word in _HUMPS.findall(part)]
    return [_singular(word) for word in words if len(word) > 2 and word not in _EMPTY]


def _singular(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is", "as", "os")):
        return word[:-1]
    return word


def choose_labels(
    possible: Sequence[Sequence[str]], training: Sequence[bool], least: int, largest_share: float
) -> list[list[str]]:
    """Return the labels of each document; empty if fewer than two remain.

    A label must have ``least`` training documents, and at most ``largest_share`` of them, to be informative. A document
    gets few labels of each category, the most specific first.
    """
    most = largest_share * sum(training)
    fitting = Counter(label for labels, train in zip(possible, training, strict=True) if train for label in labels)
    allowed = {label for label, count in fitting.items() if least <= count <= most}
    while True:
        chosen = [_few(labels, allowed) for labels in possible]
        counts = Counter(label for labels, train in zip(chosen, training, strict=True) if train for label in labels)
        rare = {label for label in allowed if counts[label] < least}
        if not rare:
            return chosen
        allowed -= rare


def _few(labels: Sequence[str], allowed: set[str]) -> list[str]:
    few = []
    for group, most in _MOST.items():
        few += [label for label in labels if label in allowed and label.startswith(f"{group}:")][:most]
    return few[:MOST_LABELS] if len(few) > 1 else []
