"""Label names: for each label, a preferred name to show, and alternative names by which texts mention it."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix, spmatrix, vstack

from xmc_tf.label_names.characters import has_letter

# A qualifier distinguishes names for readers and rarely occurs in a text: "Mercury (planet)".
_QUALIFIER = re.compile(r"\([^()]*\)|\[[^\[\]]*\]|（[^（）]*）")


class LabelVocabulary(NamedTuple):
    preferred: list[str]  # one name for each label, which predictions show
    names: list[str]  # all names to look for in texts, without qualifiers
    labels: np.ndarray  # int32: the label of each name, ascending


def label_vocabulary(lines: Sequence[str]) -> LabelVocabulary:
    """Parse the lines of a names file: each has a label's preferred and alternative names, separated by tabs."""
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
    """Remove qualifiers in brackets from a name; a name that would become empty is returned unchanged."""
    return " ".join(_QUALIFIER.sub(" ", name).split()) or name


def have_letters(names: Sequence[str]) -> bool:
    """Return whether any name contains a letter. Names that are numbers would occur in texts by chance."""
    return any(map(has_letter, names))


class NameDocuments(NamedTuple):
    """Label names as documents, which are appended to the user's training documents."""

    texts: list[str]
    Y: csr_matrix  # names × labels, one label each

    @classmethod
    def of(cls, lines: Sequence[str]) -> "NameDocuments":
        """Create a document from each label name, except for URLs and names without letters."""
        vocabulary = label_vocabulary(lines)
        kept = [at for at, name in enumerate(vocabulary.names) if has_letter(name) and "://" not in name]
        labels = vocabulary.labels[kept]
        shape = (len(kept), len(lines))
        Y = csr_matrix((np.ones(len(kept), np.float32), labels, np.arange(len(kept) + 1)), shape=shape)
        return cls([vocabulary.names[at] for at in kept], Y)

    def below(self, Y: spmatrix) -> csr_matrix:
        """Append the labels of the name documents to a label matrix."""
        return csr_matrix(vstack([csr_matrix(Y), self.Y], format="csr"))

    def unlabelled_below(self, other: spmatrix) -> csr_matrix:
        """Append empty rows for the name documents to a matrix."""
        nothing = csr_matrix((len(self.texts), other.shape[1]), dtype=other.dtype)
        return csr_matrix(vstack([csr_matrix(other), nothing], format="csr"))
