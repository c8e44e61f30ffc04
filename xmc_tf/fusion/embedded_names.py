"""Embeddings of label names, from which training learns the weight of the similarity of text and name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from xmc_tf.fusion.centers import EmbedLabels
from xmc_tf.fusion.similarity import Similarity

Embed = Callable[[Sequence[str]], np.ndarray]
"""Embed texts: float32 [texts, dim], of length 1."""


@dataclass(frozen=True, eq=False)
class EmbeddedNames:
    """Embeddings of the names of labels without documents, and of held-out documents."""

    similarity: Similarity  # of labels that are new or treated as new
    new: np.ndarray  # labels without documents, ascending
    documents: np.ndarray  # float32 [documents, dim]: embeddings of the held-out documents, of length 1

    @classmethod
    def of(cls, new: np.ndarray, read_as_new: np.ndarray, embed: EmbedLabels, documents: np.ndarray) -> Self:
        """Embed the names of labels that are new or treated as new (bool [labels] each)."""
        labels = np.flatnonzero(read_as_new).astype(np.int32)
        return cls(Similarity.measured(labels, embed(labels), documents), np.flatnonzero(new), documents)

    def of_new(self) -> Similarity:
        """Return the similarity of only the labels without documents."""
        place = np.searchsorted(self.similarity.labels, self.new)
        return self.similarity.of_labels(self.new, self.similarity.vectors[place])
