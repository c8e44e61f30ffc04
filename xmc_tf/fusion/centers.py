"""Centers of labels in the space of an encoder, and how close documents are to them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.common.errors import InputError

NAME_COUNTS_AS = 4.0
"""Number of documents that the name of a label counts as. On held-out documents, 2 to 8 were equally good."""
_MOST_VALUES = 1 << 27  # numbers in the centers of all labels, to bound the size of a model
_AT_ONCE = 100_000  # pairs, to bound memory
_SOME = 100  # documents of which one has an embedding that is not 0
_FILE = "centers.npy"
FARTHEST = -1.0

EmbedLabels = Callable[[np.ndarray], np.ndarray]
"""Returns the embeddings of the names of some labels, of length 1: float32 [labels, dim]."""


@dataclass(frozen=True, eq=False)
class LabelCenters:
    """The center of each label: the mean direction of its documents' embeddings and its name's.

    Args:
        vectors: float32 [labels, dim], of length 1; 0 for labels of which nothing is known.
    """

    vectors: np.ndarray

    @classmethod
    def of(cls, Y: csr_matrix, documents: np.ndarray, names: np.ndarray | None) -> Self:
        """Return the centers of the labels of some documents.

        Args:
            Y: documents × labels.
            documents: float32 [documents, dim]: embeddings, all of the same length.
            names: float32 [labels, dim]: embeddings of the names, of length 1; None: names are not known.
        """
        length = float(np.linalg.norm(documents[:_SOME], axis=1).max(initial=0.0)) or 1.0
        sums = np.asarray(csr_matrix(Y, dtype=np.float32).T @ documents) / np.float32(length)
        if names is not None:
            sums += np.float32(NAME_COUNTS_AS) * names
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        return cls((sums / np.where(lengths > 0, lengths, np.float32(1))).astype(np.float32))

    def with_added(self, count: int) -> Self:
        """Return the centers with further labels, which have no documents and so no center."""
        return type(self)(np.pad(self.vectors, ((0, count), (0, 0))))

    def of_pairs(self, documents: np.ndarray, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the cosine of each pair of document and center: float64.

        Args:
            documents: embeddings of documents, of length 1.
            rows: the document of each pair.
            labels: its label.
        """
        out = np.zeros(len(rows))
        for part in np.array_split(np.arange(len(rows)), max(1, len(rows) // _AT_ONCE)):
            out[part] = np.einsum("ij,ij->i", documents[rows[part]], self.vectors[labels[part]])
        return out

    def save(self, folder: Path) -> None:
        """Write the file of a fusion's folder."""
        np.save(folder / _FILE, self.vectors)

    @classmethod
    def load(cls, folder: Path, nr_labels: int) -> Self | None:
        """Load the file of a fusion's folder; None if there is none."""
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
                received=f"an array of the shape {vectors.shape}", fix="copy the model again",
            )  # fmt: skip
        return cls(vectors)


class HeldOutCenters(NamedTuple):
    """The centers that a fusion is learned with, and those that it uses afterwards.

    Attributes:
        elsewhere: centers without the held-out documents.
        every: centers of all documents.
        documents: embeddings of the held-out documents, of length 1.
    """

    elsewhere: LabelCenters
    every: LabelCenters
    documents: np.ndarray

    @classmethod
    def of(
        cls,
        Y: csr_matrix,
        embeddings: np.ndarray,
        held_out: np.ndarray,
        documents: np.ndarray,
        names: EmbedLabels | None,
    ) -> "HeldOutCenters | None":
        """Return the centers; None if there are so many labels that a model would become too large.

        Args:
            Y: documents × labels.
            embeddings: of these documents, all of the same length.
            held_out: the held-out documents, ascending.
            documents: their embeddings, of length 1.
            names: returns the embeddings of names; None: names are not known.
        """
        if Y.shape[1] * embeddings.shape[1] > _MOST_VALUES:
            return None
        vectors = None if names is None else names(np.arange(Y.shape[1]))
        weights = np.ones(Y.shape[0])
        weights[held_out] = 0
        elsewhere = csr_matrix(Y.multiply(weights[:, None]))
        return cls(LabelCenters.of(elsewhere, embeddings, vectors), LabelCenters.of(Y, embeddings, vectors), documents)
