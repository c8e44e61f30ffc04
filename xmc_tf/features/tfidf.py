"""TF-IDF features of texts, fitted in one pass and computed by compiled kernels."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.common.progress import Progress
from xmc_tf.features import store
from xmc_tf.features.batches import TextRange, map_in_order, text_batches
from xmc_tf.features.counts import NgramCounter
from xmc_tf.features.texts import Weigher, splitter
from xmc_tf.features.vocabulary import Vocabulary, choose_features
from xmc_tf.params import TfidfParams

if TYPE_CHECKING:
    from typing import Self

    from xmc_tf.data import TextFile
    from xmc_tf.features.graph import TfidfGraph


class Tfidf:
    """TF-IDF weights of the words and word n-grams of texts.

    By default a weight is (1 + log(count)) times the inverse document frequency, which is ln((1 + documents) /
    (1 + documents with it)) + 1, and each text's weights are scaled to length 1. Features are ordered by falling number
    of documents.

    Example:
        >>> tfidf = Tfidf.fit(TextFile("X.trn.txt"))
        >>> X = tfidf.transform(TextFile("X.tst.txt"))
        >>> tfidf.save("model/tfidf")

    Args:
        params: how to split and weigh words.
        vocabulary: the features.
        nr_documents: number of documents it was fitted to.
    """

    def __init__(self, params: TfidfParams, vocabulary: Vocabulary, nr_documents: int) -> None:
        self.params = params
        self.nr_documents = nr_documents
        self._vocabulary = vocabulary

    def __repr__(self) -> str:
        return f"Tfidf({self.nr_features:,} features of {self.nr_documents:,} documents)"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the constructor's arguments; all else is rebuilt."""
        return type(self), (self.params, self._vocabulary, self.nr_documents)

    @classmethod
    def fit(
        cls,
        texts: "TextFile | Sequence[bytes] | Sequence[str]",
        params: TfidfParams | None = None,
        threads: int = -1,
    ) -> "Self":
        """Choose the features in one pass; memory grows only with the number of different n-grams.

        Args:
            texts: the texts; bytes are UTF-8.
            params: the parameters; None: the defaults.
            threads: number of threads; -1: one per core. The result does not depend on it.

        Raises:
            InputError: no n-gram occurs in ``min_df`` documents.
        """
        params = params or TfidfParams()
        with Progress("TF-IDF: counting words", len(texts), "documents") as progress:
            counter = count_ngrams(texts, params, threads, progress)
        return cls(params, choose_features(counter.counted(), counter.nr_rows, params), counter.nr_rows)

    def transform(
        self, texts: "TextFile | TextRange | Sequence[bytes] | Sequence[str]", threads: int = -1, quiet: bool = False
    ) -> csr_matrix:
        """Compute the features of texts.

        Args:
            texts: the texts; bytes are UTF-8.
            threads: number of threads; -1: one per core. The result does not depend on it.
            quiet: whether to hide progress.

        Returns:
            float32 [texts, features], the features of each row ascending; a text without features is an empty row.
        """
        sizes, ids, weights = [], [], []
        quiet_s = float("inf") if quiet else 2.0
        with Progress("TF-IDF: weighing words", len(texts), "documents", quiet_s) as progress:
            for batch, rows in map_in_order(self._weigher, text_batches(texts), threads):
                sizes.append(np.diff(rows[0]))
                ids.append(rows[1])
                weights.append(rows[2])
                progress.add(len(batch))
        return _sparse(sizes, ids, weights, self.nr_features)

    def graph(self) -> "TfidfGraph":
        """Return `transform` as a TensorFlow graph, to call in a larger graph and save."""
        return self._graph

    @cached_property
    def _graph(self) -> "TfidfGraph":
        from xmc_tf.features.graph import TfidfGraph  # it loads TensorFlow

        return TfidfGraph(self.params, self._vocabulary.keys, self._vocabulary.columns, self._vocabulary.idf)

    @cached_property
    def _weigher(self) -> Weigher:
        return Weigher(self.params, self._vocabulary)

    @property
    def nr_features(self) -> int:
        """The number of features."""
        return len(self._vocabulary)

    @property
    def names(self) -> list[str]:
        """The n-gram of each feature, its words separated by a space."""
        return self._vocabulary.names

    def save(self, folder: str | Path) -> None:
        """Write a folder; its ``vocabulary.txt`` lists the names of the features for reading.

        Args:
            folder: folder of the vectorizer; an older vectorizer there is replaced.
        """
        store.save(folder, self.params, self._vocabulary, self.nr_documents)

    @classmethod
    def load(cls, folder: str | Path) -> "Self":
        """Load a folder that `save` wrote.

        Raises:
            InputError: a file is missing, truncated, changed, or inconsistent with the others; the error names it.

        Args:
            folder: folder of the vectorizer.
        """
        return cls(*store.load(folder))


def count_ngrams(
    texts: "TextFile | TextRange | Sequence[bytes] | Sequence[str]",
    params: TfidfParams,
    threads: int,
    progress: Progress,
) -> NgramCounter:
    """Count the n-grams of texts, the first half of fitting.

    Args:
        texts: the texts; bytes are UTF-8.
        params: how to split words.
        threads: number of threads; -1: one per core.
        progress: the progress display.
    """
    counter = NgramCounter()
    for batch, split in map_in_order(splitter(params), text_batches(texts), threads):
        counter.add_words(split.words(counter.add(split.keys, split.row_splits)))
        progress.add(len(batch))
    return counter


def _sparse(sizes: list[np.ndarray], ids: list[np.ndarray], weights: list[np.ndarray], nr_features: int) -> csr_matrix:
    """Concatenate batches of rows; empty each list as soon as possible, because it is as large as the matrix."""
    starts = np.concatenate([[0], *sizes]).cumsum()
    ids[:] = [np.concatenate([np.zeros(0, np.int32), *ids])]
    weights[:] = [np.concatenate([np.zeros(0, np.float32), *weights])]
    index = np.int32 if starts[-1] <= np.iinfo(np.int32).max else np.int64
    matrix = csr_matrix(
        (weights[0], ids[0].astype(index, copy=False), starts.astype(index)),
        shape=(len(starts) - 1, nr_features),
    )
    matrix.has_canonical_format = True  # the kernel returns sorted rows without duplicates
    return matrix
