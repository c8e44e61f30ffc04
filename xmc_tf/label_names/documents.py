"""Label names as training documents."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix, spmatrix, vstack

from xmc_tf.label_names.characters import has_letter
from xmc_tf.label_names.vocabulary import label_vocabulary


class NameDocuments(NamedTuple):
    """The names of labels as documents, which training appends to the user's own."""

    texts: list[str]
    Y: csr_matrix  # names × labels, one label each

    @classmethod
    def of(cls, lines: Sequence[str]) -> "NameDocuments":
        """Return the documents of label names; names that are only numbers or URLs are left out."""
        vocabulary = label_vocabulary(lines)
        kept = [at for at, name in enumerate(vocabulary.names) if has_letter(name) and "://" not in name]
        labels = vocabulary.labels[kept]
        shape = (len(kept), len(lines))
        Y = csr_matrix((np.ones(len(kept), np.float32), labels, np.arange(len(kept) + 1)), shape=shape)
        return cls([vocabulary.names[at] for at in kept], Y)

    def below(self, Y: spmatrix) -> csr_matrix:
        """Return the labels of documents, followed by those of the names."""
        return csr_matrix(vstack([csr_matrix(Y), self.Y], format="csr"))

    def unlabelled_below(self, other: spmatrix) -> csr_matrix:
        """Return a matrix of documents, followed by empty rows for the names."""
        nothing = csr_matrix((len(self.texts), other.shape[1]), dtype=other.dtype)
        return csr_matrix(vstack([csr_matrix(other), nothing], format="csr"))
