"""TF-IDF features of texts, fitted in one pass and computed by the graph that is also served."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import tensorflow as tf
from scipy.sparse import csr_matrix

from xmc_tf.common.process.forks import check_not_forked
from xmc_tf.common.progress import Progress
from xmc_tf.features import store
from xmc_tf.features.batches import TextRange, map_in_order, text_batches
from xmc_tf.features.graph import TfidfGraph
from xmc_tf.features.vocabulary import Vocabulary, choose_features
from xmc_tf.features.words import ngram_keys, split_words
from xmc_tf.params import TfidfParams

if TYPE_CHECKING:
    from xmc_tf.data import TextFile
    from xmc_tf.features.counts import NgramCounter


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
        self._graph = TfidfGraph(params, vocabulary.keys, vocabulary.columns, vocabulary.idf)

    def __repr__(self) -> str:
        return f"Tfidf({self.nr_features:,} features of {self.nr_documents:,} documents)"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the constructor's arguments; the graph is rebuilt."""
        return type(self), (self.params, self._vocabulary, self.nr_documents)

    @classmethod
    def fit(
        cls,
        texts: "TextFile | Sequence[bytes] | Sequence[str]",
        params: TfidfParams | None = None,
        threads: int = -1,
    ) -> Self:
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
        check_not_forked("features of texts")
        weigh = self._graph.__call__.get_concrete_function()
        sizes, ids, weights = [], [], []
        quiet_s = float("inf") if quiet else 2.0
        with Progress("TF-IDF: weighing words", len(texts), "documents", quiet_s) as progress:
            for batch, rows in map_in_order(
                lambda batch: weigh(tf.constant(batch, tf.string)), text_batches(texts), threads
            ):
                sizes.append(np.diff(rows[0].numpy()))
                ids.append(rows[1].numpy())
                weights.append(rows[2].numpy())
                progress.add(len(batch))
        return _sparse(sizes, ids, weights, self.nr_features)

    def graph(self) -> TfidfGraph:
        """Return the graph from texts to features that `transform` runs, to call in a larger graph and save."""
        return self._graph

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
    def load(cls, folder: str | Path) -> Self:
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
) -> "NgramCounter":
    """Count the n-grams of texts, the first half of fitting.

    Args:
        texts: the texts; bytes are UTF-8.
        params: how to split words.
        threads: number of threads; -1: one per core.
        progress: the progress display.
    """
    # Imported here, because loading a fitted TF-IDF should not wait for numba.
    from xmc_tf.features.counts import NgramCounter

    counter, split = NgramCounter(), _splitter(params)
    for batch, (words, keys, row_splits) in map_in_order(split, text_batches(texts), threads):
        new = counter.add(keys.numpy(), row_splits.numpy())
        counter.add_words(tf.gather(words, new).numpy().tolist())
        progress.add(len(batch))
    return counter


def _splitter(params: TfidfParams) -> Callable[[list[bytes]], tuple[tf.Tensor, ...]]:
    """Return the part of the graph that needs no vocabulary: texts to words, n-gram keys, row splits."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def split(text: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        with tf.device("CPU:0"):
            words, row_splits = split_words(text, params.lowercase, params.min_word_length)
            return words, ngram_keys(words, row_splits, params.ngram_max)[0], row_splits

    traced = split.get_concrete_function()
    return lambda batch: traced(tf.constant(batch, tf.string))


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
    matrix.has_canonical_format = True  # the graph returns sorted rows without duplicates
    return matrix
