"""Embeddings of the names of labels, from which training learns what a similarity of text and name is worth."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from xmc_tf.fusion.centers import EmbedLabels
from xmc_tf.fusion.similarity import Similarity

Embed = Callable[[Sequence[str]], np.ndarray]
"""Returns the embeddings of texts, of length 1: float32 [texts, dim]."""

_MOST_KNOWN = 4000  # labels with documents that training reads as if they had none


@dataclass(frozen=True, eq=False)
class EmbeddedNames:
    """Embeddings of names and of held-out documents, of length 1.

    Args:
        labels: some labels with documents, ascending.
        vectors: float32 [labels, dim]: of their names.
        new_labels: the labels without documents, ascending.
        new_vectors: float32 [labels, dim]: of their names.
        documents: float32 [documents, dim].
    """

    labels: np.ndarray
    vectors: np.ndarray
    new_labels: np.ndarray
    new_vectors: np.ndarray
    documents: np.ndarray

    @classmethod
    def of(cls, nr_documents: np.ndarray, embed: EmbedLabels, documents: np.ndarray) -> Self:
        """Embed the names that are needed.

        Args:
            nr_documents: number of training documents of each label.
            embed: returns the embeddings of names.
            documents: embeddings of held-out documents.
        """
        known, new = np.flatnonzero(nr_documents > 0), np.flatnonzero(nr_documents == 0)
        known = known[:: max(1, -(-len(known) // _MOST_KNOWN))]
        vectors = embed(np.concatenate([known, new]))
        known_vectors, new_vectors = vectors[: len(known)], vectors[len(known) :]
        return cls(known.astype(np.int32), known_vectors, new.astype(np.int32), new_vectors, documents)

    def of_known(self) -> Similarity:
        """Return the similarity of the labels with documents, read as if they had none."""
        return Similarity.measured(self.labels, self.vectors, self.documents)
