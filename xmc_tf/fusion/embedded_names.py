"""Embeddings of the names of labels, from which training learns what a similarity of text and name is worth."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from xmc_tf.fusion.centers import EmbedLabels
from xmc_tf.fusion.similarity import Similarity

Embed = Callable[[Sequence[str]], np.ndarray]
"""Returns the embeddings of texts, of length 1: float32 [texts, dim]."""


@dataclass(frozen=True, eq=False)
class EmbeddedNames:
    """Embeddings of the names of labels without documents, and of held-out documents.

    Args:
        similarity: of labels without documents, and of those that a training reads as if they had none.
        new: the labels without documents, ascending.
        documents: float32 [documents, dim]: embeddings of the held-out documents, of length 1.
    """

    similarity: Similarity
    new: np.ndarray
    documents: np.ndarray

    @classmethod
    def of(cls, new: np.ndarray, read_as_new: np.ndarray, embed: EmbedLabels, documents: np.ndarray) -> Self:
        """Embed the names that are needed.

        Args:
            new: bool [labels]: labels without documents.
            read_as_new: bool [labels]: these, and labels that a training reads as if they had none.
            embed: returns the embeddings of names.
            documents: embeddings of held-out documents.
        """
        labels = np.flatnonzero(read_as_new).astype(np.int32)
        return cls(Similarity.measured(labels, embed(labels), documents), np.flatnonzero(new), documents)

    def of_new(self) -> Similarity:
        """Return the similarity of the labels without documents alone."""
        place = np.searchsorted(self.similarity.labels, self.new)
        return self.similarity.of_labels(self.new, self.similarity.vectors[place])
