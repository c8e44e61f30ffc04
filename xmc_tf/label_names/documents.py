"""A label's name is a document that has that label."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix, spmatrix, vstack

from xmc_tf.label_names.characters import has_letter
from xmc_tf.label_names.vocabulary import label_vocabulary


class NameDocuments(NamedTuple):
    """The names of labels as documents, which trainings read behind the user's own.

    Attributes:
        texts: the names, each a document.
        Y: names × labels, one label each.
    """

    texts: list[str]
    Y: csr_matrix

    @classmethod
    def of(cls, lines: Sequence[str]) -> "NameDocuments":
        r"""Return the documents of the names of labels; numbers and addresses that stand for names are none.

        Example:
            >>> NameDocuments.of(["Mercury (planet)", "cats\tfelines", "http://example.org/p27"]).texts
            ['Mercury', 'cats', 'felines']

        Args:
            lines: for each label its name; alternative names follow after tabs.
        """
        vocabulary = label_vocabulary(lines)
        kept = [at for at, name in enumerate(vocabulary.names) if has_letter(name) and "://" not in name]
        labels = vocabulary.labels[kept]
        shape = (len(kept), len(lines))
        Y = csr_matrix((np.ones(len(kept), np.float32), labels, np.arange(len(kept) + 1)), shape=shape)
        return cls([vocabulary.names[at] for at in kept], Y)

    def below(self, Y: spmatrix) -> csr_matrix:
        """Return the labels of documents, and behind them those of the names."""
        return csr_matrix(vstack([csr_matrix(Y), self.Y], format="csr"))

    def unlabelled_below(self, other: spmatrix) -> csr_matrix:
        """Return another matrix of documents, and behind it nothing for the names."""
        nothing = csr_matrix((len(self.texts), other.shape[1]), dtype=other.dtype)
        return csr_matrix(vstack([csr_matrix(other), nothing], format="csr"))
