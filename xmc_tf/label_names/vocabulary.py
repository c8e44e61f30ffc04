"""The names of labels: a preferred one for people, and alternative ones by which texts mention the label."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from xmc_tf.label_names.characters import has_letter

# A qualifier distinguishes names for people and is rarely in a text: "Mercury (planet)".
_QUALIFIER = re.compile(r"\([^()]*\)|\[[^\[\]]*\]|（[^（）]*）")


class LabelVocabulary(NamedTuple):
    preferred: list[str]  # one name for each label, which predictions show
    names: list[str]  # all names to look for in texts, without qualifiers
    labels: np.ndarray  # int32: the label of each name, ascending


def label_vocabulary(lines: Sequence[str]) -> LabelVocabulary:
    """Return the names of labels from the lines of a names file: a label per line, alternative names after tabs."""
    preferred: list[str] = []
    names: list[str] = []
    labels: list[int] = []
    for label, line in enumerate(lines):
        own = [name.strip() for name in line.split("\t")]
        preferred.append(line if len(own) == 1 else own[0])
        for name in dict.fromkeys(without_qualifier(one) for one in own if one):
            names.append(name)
            labels.append(label)
    return LabelVocabulary(preferred, names, np.array(labels, np.int32))


def without_qualifier(name: str) -> str:
    """Return a name without qualifiers in brackets; unchanged if nothing else would remain."""
    return " ".join(_QUALIFIER.sub(" ", name).split()) or name


def have_letters(names: Sequence[str]) -> bool:
    """Return whether any name has a letter; numbers that stand for names occur in texts by chance."""
    return any(map(has_letter, names))
