"""The similarity of texts to the names of labels, measured by embeddings."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from zipfile import BadZipFile

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.fusion.centers import EmbedLabels
from xmc_tf.label_names import Mentions

MOST = 30  # maximum number of labels that are candidates of a document
_AT_ONCE = 1 << 24  # cosines, to bound memory
MOST_MEASURED = 2000  # documents from which the limit is estimated
_FILE = "similarity.npz"
_MOST_COMPARED, _ENOUGH_MENTIONS = 500, 50  # documents and mentions that show whether an encoder knows a language
KNOWN = 0.7  # least rank of mentions: that of an encoder that does not know the language is near 0.5
LOWEST = -4.0
MOST_VALUES = 1 << 25
"""Maximum count of numbers in the embeddings of all names, to bound the time and memory of an answer."""

Embed = Callable[[Sequence[str]], np.ndarray]
"""Embed texts: float32 [texts, dim], of unit norm."""


@dataclass(frozen=True, eq=False)
class Similarity:
    """Embeddings of the names of labels. The similarity is (cosine - ``least``) / ``scale``."""

    labels: np.ndarray  # int32, ascending
    vectors: np.ndarray  # float32 [labels, dim]: embeddings of their names, of unit norm
    least: float  # cosine from which a label is a candidate
    scale: float  # unit of similarities

    @classmethod
    def of_names(cls, labels: np.ndarray, names: np.ndarray, documents: np.ndarray) -> Self:
        """Measure the similarity on texts without labels. Each name (unit norm) has a label; its first name counts."""
        own, first = np.unique(labels, return_index=True)
        return cls.measured(own.astype(np.int32), names[first], documents)

    @classmethod
    def measured(cls, labels: np.ndarray, vectors: np.ndarray, documents: np.ndarray) -> Self:
        """Choose ``least`` so that ``MOST`` labels pass per document on average; ``scale`` is the spread of these."""
        some = documents[:: -(-len(documents) // MOST_MEASURED)]
        largest = np.zeros(0, np.float32)
        for part in np.array_split(some, _parts(some, vectors)):
            every = np.concatenate([largest, (part @ vectors.T).ravel()])
            largest = np.partition(every, max(len(every) - MOST * len(some), 0))[-MOST * len(some) :]
        cosines = np.sort(largest)[::-1].astype(np.float64)
        # Rounded so that they do not depend on the version of the math libraries.
        return cls(labels, vectors, round(float(cosines[-1]), 4), max(round(float(cosines.std()), 4), 1e-3))

    def of_labels(self, labels: np.ndarray, vectors: np.ndarray) -> Self:
        """Return a copy with other labels but the same ``least`` and ``scale``."""
        return dataclasses.replace(self, labels=np.asarray(labels, np.int32), vectors=vectors)

    def with_added(self, labels: np.ndarray, vectors: np.ndarray) -> Self:
        """Return a copy with additional labels, which must have higher numbers."""
        return self.of_labels(np.concatenate([self.labels, labels]), np.concatenate([self.vectors, vectors]))

    def candidates(self, documents: np.ndarray, nr_labels: int) -> csr_matrix:
        """Return the most similar labels of each document as a matrix of documents × labels with entries of 1."""
        rows, places = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for part in np.array_split(np.arange(len(documents)), _parts(documents, self.vectors)):
            cosines = documents[part] @ self.vectors.T
            row, place = np.nonzero(cosines >= np.float32(self.least))
            order = np.lexsort((place, -cosines[row, place], row))
            first = np.searchsorted(row, np.arange(len(cosines)))
            kept = order[np.arange(len(row)) - first[row] < MOST]
            rows.append(part[row[kept]])
            places.append(place[kept])
        row, label = np.concatenate(rows), self.labels[np.concatenate(places)]
        out = csr_matrix((np.ones(len(row), np.float32), (row, label)), shape=(len(documents), nr_labels))
        out.sort_indices()
        return out

    def of_pairs(self, documents: np.ndarray, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the similarity of each pair of document and label as float64; 0 for labels without an embedding."""
        out = np.zeros(len(rows))
        if not len(self.labels):
            return out
        place = np.minimum(np.searchsorted(self.labels, labels), len(self.labels) - 1)
        for part in np.array_split(np.flatnonzero(self.labels[place] == labels), max(1, len(rows) // 100_000)):
            cosines = np.einsum("ij,ij->i", documents[rows[part]], self.vectors[place[part]])
            out[part] = np.maximum((cosines.astype(np.float64) - self.least) / self.scale, LOWEST)
        return out

    def ranks_of_pairs(self, documents: np.ndarray, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return for each pair, sorted by document, the share of labels that are less similar: 0.5 by chance."""
        out, places = np.zeros(len(rows)), np.searchsorted(self.labels, labels)
        for row in np.unique(rows):
            cosines, own = self.vectors @ documents[row], slice(*np.searchsorted(rows, [row, row + 1]))
            out[own] = (cosines < cosines[places[own], None]).mean(axis=1)
        return out

    def rank_of_mentions(self, documents: np.ndarray, mentions: Mentions) -> float:
        """Return the mean share of labels that are less similar to a document than a label it mentions.

        0.5 is chance. NaN if too few labels are mentioned.
        """
        some = np.arange(len(documents)) % -(-len(documents) // _MOST_COMPARED) == 0
        whole = mentions.only(mentions.full & some[mentions.rows] & np.isin(mentions.labels, self.labels))
        if len(whole.rows) < _ENOUGH_MENTIONS:
            return math.nan
        return float(self.ranks_of_pairs(documents, whole.rows, whole.labels).mean())

    def save(self, folder: Path) -> None:
        with (folder / _FILE).open("wb") as file:
            # Without allow_pickle, which numpy before 2.1 stores as another array.
            np.savez(file, labels=self.labels, vectors=self.vectors, limits=np.array([self.least, self.scale]))

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """Load the similarity from the folder of a fusion; return None if it has none."""
        path = folder / _FILE
        if not path.exists():
            return None
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as held:
                least, scale = held["limits"].tolist()
                return cls(held["labels"], held["vectors"], least, scale)
        except (EOFError, OSError, KeyError, ValueError, BadZipFile) as error:
            raise InputError(f"{path} cannot be read: {error}", fix="copy the model again") from None


def _parts(documents: np.ndarray, vectors: np.ndarray) -> int:
    """Return into how many parts documents are split so that there are at most ``_AT_ONCE`` cosines at a time."""
    return max(1, min(len(documents), -(-len(documents) * len(vectors) // _AT_ONCE)))


@dataclass(frozen=True, eq=False)
class EmbeddedNames:
    """The embeddings of the names of labels, and of the held-out documents."""

    similarity: Similarity  # of the labels that are kept or treated as new
    kept: np.ndarray  # labels whose names the model compares with texts, ascending
    rank_of_mentions: float  # see `Similarity.rank_of_mentions`
    documents: np.ndarray  # float32 [documents, dim]: embeddings of the held-out documents, of unit norm

    @classmethod
    def of(
        cls, new: np.ndarray, read_as_new: np.ndarray, embed: EmbedLabels, documents: np.ndarray, mentions: Mentions
    ) -> Self:
        """Embed the names of all labels; if they are many, only those without documents (``new``: bool [labels]).

        ``read_as_new`` marks these and others that were hidden in training. ``documents`` and ``mentions`` are those
        of the held-out documents.
        """
        if len(new) * documents.shape[1] <= MOST_VALUES:
            new = read_as_new = np.ones_like(new)
        labels = np.flatnonzero(read_as_new).astype(np.int32)
        similarity = Similarity.measured(labels, embed(labels), documents)
        return cls(similarity, np.flatnonzero(new), similarity.rank_of_mentions(documents, mentions), documents)

    @property
    def knows_language(self) -> bool:
        """Whether the mentions show that the encoder knows the language of the documents."""
        return self.rank_of_mentions >= KNOWN

    def of_kept(self) -> Similarity:
        """Return the similarity for only those labels that the model compares with texts."""
        place = np.searchsorted(self.similarity.labels, self.kept)
        return self.similarity.of_labels(self.kept, self.similarity.vectors[place])
