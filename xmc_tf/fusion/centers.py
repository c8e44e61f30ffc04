"""Label centers in the embedding space, and the similarity of documents to them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.common.errors import InputError

NAME_COUNTS_AS = 4.0
"""Number of documents that a label's name counts as. On held-out documents, 2 to 8 were equally good."""
_MOST_VALUES = 1 << 27  # maximum count of numbers in all centers, to bound the size of a model
_AT_ONCE = 100_000  # pairs, to bound memory
_SOME = 100  # documents, at least one of which has an embedding other than 0
_FILE = "centers.npy"
FARTHEST = -1.0

EmbedLabels = Callable[[np.ndarray], np.ndarray]
"""Embed the names of some labels: float32 [labels, dim], of unit norm."""


@dataclass(frozen=True, eq=False)
class LabelCenters:
    """The center of each label: the mean direction of the embeddings of its documents and of its name."""

    vectors: np.ndarray  # float32 [labels, dim], of unit norm; 0 if nothing is known of the label

    @classmethod
    def of(cls, Y: csr_matrix, documents: np.ndarray, names: np.ndarray | None) -> Self:
        """Compute the centers. The embeddings of documents must all have the same length, those of names length 1."""
        length = float(np.linalg.norm(documents[:_SOME], axis=1).max(initial=0.0)) or 1.0
        sums = np.asarray(csr_matrix(Y, dtype=np.float32).T @ documents) / np.float32(length)
        if names is not None:
            sums += np.float32(NAME_COUNTS_AS) * names
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        return cls((sums / np.where(lengths > 0, lengths, np.float32(1))).astype(np.float32))

    def with_added(self, count: int) -> Self:
        """Return a copy with ``count`` new labels, which have no documents and therefore no center."""
        return type(self)(np.pad(self.vectors, ((0, count), (0, 0))))

    def of_pairs(self, documents: np.ndarray, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the cosine of the document and the center in each pair, as float64. ``documents`` have length 1."""
        out = np.zeros(len(rows))
        for part in np.array_split(np.arange(len(rows)), max(1, len(rows) // _AT_ONCE)):
            out[part] = np.einsum("ij,ij->i", documents[rows[part]], self.vectors[labels[part]])
        return out

    def save(self, folder: Path) -> None:
        np.save(folder / _FILE, self.vectors)

    @classmethod
    def load(cls, folder: Path, nr_labels: int) -> Self | None:
        """Load the centers from the folder of a fusion; return None if it has none."""
        path = folder / _FILE
        if not path.exists():
            return None
        try:
            vectors = np.load(path, allow_pickle=False)
        except (EOFError, OSError, ValueError) as error:
            raise InputError(f"{path} cannot be read: {error}", fix="copy the model again") from None
        if vectors.ndim != 2 or len(vectors) != nr_labels:
            raise InputError(
                f"{path} does not belong to this model", expected=f"{nr_labels:,} centers",
                received=f"an array of shape {vectors.shape}", fix="copy the model again",
            )  # fmt: skip
        return cls(vectors)


class HeldOutCenters(NamedTuple):
    """The centers with which a fusion is trained, and the centers that it uses afterwards."""

    elsewhere: LabelCenters  # without the held-out documents
    every: LabelCenters  # of all documents
    documents: np.ndarray  # embeddings of the held-out documents, of unit norm

    @classmethod
    def of(
        cls,
        Y: csr_matrix,
        embeddings: np.ndarray,  # of the documents of Y, all of the same length
        held_out: np.ndarray,  # ascending
        documents: np.ndarray,  # embeddings of the held-out documents, of unit norm
        names: EmbedLabels | None,
    ) -> "HeldOutCenters | None":
        """Compute both sets of centers; return None if they would make the model too large."""
        if Y.shape[1] * embeddings.shape[1] > _MOST_VALUES:
            return None
        vectors = None if names is None else names(np.arange(Y.shape[1]))
        weights = np.ones(Y.shape[0])
        weights[held_out] = 0
        elsewhere = csr_matrix(Y.multiply(weights[:, None]))
        return cls(LabelCenters.of(elsewhere, embeddings, vectors), LabelCenters.of(Y, embeddings, vectors), documents)
