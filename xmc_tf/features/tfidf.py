"""A TF-IDF vectorizer that is fitted in one pass over the texts and runs in compiled kernels."""

import dataclasses
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.common.progress import Progress
from xmc_tf.common.threads import map_in_order
from xmc_tf.data import Texts, kinds_of_texts, without_names
from xmc_tf.features import store
from xmc_tf.features.counts import NgramCounter, NgramCounts
from xmc_tf.features.texts import splitter, text_batches, weigher
from xmc_tf.features.vocabulary import Vocabulary, choose_block, no_features_error, vocabulary_of
from xmc_tf.params import TfidfParams
from xmc_tf.params.tfidf import AUTO, first_language
from xmc_tf.words.abbreviations import abbreviations
from xmc_tf.words.languages import WITH_COMPOUNDS, chosen_languages
from xmc_tf.words.lexicon import NO_LEXICON, Lexicon

if TYPE_CHECKING:
    from xmc_tf.features.graph import TfidfGraph

_LONG_TEXT = 40  # words
# Weights of pieces in short and in long texts. In languages that write compounds as one word, pieces find the parts.
_WEIGHTS, _WEIGHTS_OF_COMPOUNDS = (0.5, 0.3), (0.7, 0.5)


class Tfidf:
    """TF-IDF weights of lemmas, n-grams of lemmas, and pieces of long words.

    By default, a weight is (1 + log(count)) times the inverse document frequency, which is ln((1 + documents) /
    (1 + documents with the feature)) + 1. The weights of each text are scaled to length 1. Features are sorted by
    descending number of documents.

    Example:
        >>> tfidf = Tfidf.fit(TextFile("X.trn.txt"))
        >>> X = tfidf.transform(TextFile("X.tst.txt"))
        >>> tfidf.save("model/tfidf")

    Args:
        params: how to split texts and weigh words.
        vocabulary: the features.
        nr_documents: number of documents to which it was fitted.
        lexicon: the lemmas of words.
    """

    def __init__(
        self, params: TfidfParams, vocabulary: Vocabulary, nr_documents: int, lexicon: Lexicon = NO_LEXICON
    ) -> None:
        self.params, self.nr_documents = params, nr_documents
        self._vocabulary, self._lexicon = vocabulary, lexicon

    def __repr__(self) -> str:
        return f"Tfidf({self.nr_features:,} features of {self.nr_documents:,} documents)"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.params, self._vocabulary, self.nr_documents, self._lexicon)

    @classmethod
    def fit(cls, texts: Texts, params: TfidfParams | None = None, threads: int = -1) -> Self:
        """Choose the features in one pass over the texts. Memory grows only with the number of distinct n-grams.

        Args:
            texts: the texts; bytes must be UTF-8.
            params: the parameters; None: the defaults.
            threads: number of threads, which does not change the result; -1: one per core.

        Raises:
            InputError: no n-gram occurs in ``min_df`` documents.
        """
        params, lexicon = resolved(params or TfidfParams(), texts)
        with Progress("TF-IDF: counting words", len(texts), kinds_of_texts(texts)) as progress:
            counts = count_terms(texts, params, lexicon, threads, progress)
        params = weighted(params, counts.nr_words, counts.nr_documents)
        blocks = [choose_block(counts.ngrams, params), choose_block(counts.pieces, params, params.piece_weight or 0.0)]
        if not len(blocks[0].keys):
            most = int(counts.ngrams.documents.max(initial=0))
            raise no_features_error(len(counts.ngrams.keys), most, counts.nr_documents, params)
        vocabulary = vocabulary_of(blocks if params.pieces else blocks[:1], counts.nr_documents)
        return cls(params, vocabulary, counts.nr_documents, lexicon.reduced(vocabulary.keys))

    def transform(self, texts: Texts, threads: int = -1, quiet: bool = False) -> csr_matrix:
        """Compute the features of texts.

        Args:
            texts: the texts; bytes must be UTF-8.
            threads: number of threads, which does not change the result; -1: one per core.
            quiet: whether to hide the progress display.

        Returns:
            A float32 matrix of texts × features, with sorted indices. Texts without features have empty rows.
        """
        sizes, ids, weights = [np.zeros(1, np.int64)], [np.zeros(0, np.int32)], [np.zeros(0, np.float32)]
        quiet_s = float("inf") if quiet else 2.0
        with Progress("TF-IDF: weighing words", len(texts), kinds_of_texts(texts), quiet_s) as progress:
            for batch, rows in map_in_order(self._weigher, text_batches(texts), threads):
                sizes.append(np.diff(rows[0]))
                ids.append(rows[1])
                weights.append(rows[2])
                progress.add(len(batch))
        starts = np.concatenate(sizes).cumsum()
        # Each list is emptied as soon as possible, because it is as large as the matrix.
        ids[:] = [np.concatenate(ids)]
        weights[:] = [np.concatenate(weights)]
        index = np.int32 if starts[-1] <= np.iinfo(np.int32).max else np.int64
        arrays = (weights[0], ids[0].astype(index, copy=False), starts.astype(index))
        matrix = csr_matrix(arrays, shape=(len(starts) - 1, self.nr_features))
        matrix.has_canonical_format = True  # the kernel returns sorted rows without duplicates
        return matrix

    def information(self, X: csr_matrix) -> np.ndarray:
        """Return how much of each text is known (float64): the sum of its features' `information_of_features`.

        Args:
            X: the features that `transform` has computed.
        """
        sums = np.concatenate([[0.0], np.cumsum(self.information_of_features[X.indices])])
        return sums[X.indptr[1:]] - sums[X.indptr[:-1]]

    @cached_property
    def information_of_features(self) -> np.ndarray:
        """The rarity of each feature (float64), from 0 on: features that nearly all documents have say nothing."""
        return np.maximum(self._vocabulary.idf.astype(np.float64) - 1.0, 0.0)

    def graph(self) -> "TfidfGraph":
        """Return `transform` as a TensorFlow graph, which can be called within a larger graph and saved."""
        return self._graph

    @cached_property
    def _graph(self) -> "TfidfGraph":
        from xmc_tf.features.graph import TfidfGraph  # it loads TensorFlow

        return TfidfGraph(self.params, self._vocabulary, self._lexicon)

    @cached_property
    def _weigher(self) -> Callable[[list[bytes]], tuple[np.ndarray, np.ndarray, np.ndarray]]:
        return weigher(self.params, self._vocabulary, self._lexicon)

    @property
    def nr_features(self) -> int:
        """The number of n-grams and pieces in the vocabulary: the columns of `transform`."""
        return len(self._vocabulary)

    @property
    def names(self) -> list[str]:
        """The name of each feature: an n-gram, with spaces between its words, or a piece, such as "talv*"."""
        return self._vocabulary.names

    def words_of_features(self, text: str) -> dict[int, str]:
        """Map each feature of a text to the words of its first occurrence, in lower case if the parameters say so.

        Args:
            text: the text.
        """
        split = splitter(self.params, self._lexicon)([text.encode("utf-8", "replace")])
        words = [word.decode("utf-8", "replace") for word in split.words(np.arange(len(split.ends)))]
        named = [(split.pieces, [words[place] for place in split.word_of_piece.tolist()])]
        for n in range(min(self.params.ngram_max, len(words))):
            runs = [" ".join(words[first : first + n + 1]) for first in range(len(words) - n)]
            named.append((split.keys[: len(runs), n], runs))
        found: dict[int, str] = {}
        for keys, names in named:
            place = np.minimum(np.searchsorted(self._vocabulary.keys, keys), self.nr_features - 1)
            known = np.flatnonzero(self._vocabulary.keys[place] == keys)
            for at in known[::-1].tolist():  # the first of several words remains
                found[int(self._vocabulary.columns[place[at]])] = names[at]
        return found

    def save(self, folder: str | Path) -> None:
        """Save the vectorizer to a folder. The file ``vocabulary.txt`` lists the feature names in readable form.

        Args:
            folder: folder of the vectorizer; an older vectorizer in it is replaced.
        """
        store.save(folder, self.params, self._vocabulary, self.nr_documents, self._lexicon)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Load a vectorizer from a folder written by `save`.

        Args:
            folder: folder of the vectorizer.

        Raises:
            InputError: a file is missing, truncated, changed, or inconsistent with the others; the error names it.
        """
        return cls(*store.load(folder))


class Counts(NamedTuple):
    """The counts of the n-grams of lemmas, and of the pieces of long words."""

    ngrams: NgramCounts
    pieces: NgramCounts
    nr_documents: int
    nr_words: int


def resolved(params: TfidfParams, texts: Texts) -> tuple[TfidfParams, Lexicon]:
    """Return the parameters with the detected language filled in, and the lexicon of the language.

    Names of labels are too short to detect a language from, so documents decide, unless there are only names.
    """
    documents = without_names(texts)
    languages = chosen_languages(params.language, documents)
    if params.language == AUTO:
        # AUTO remains if no language is found: scripts without spaces are then split all the same.
        params = dataclasses.replace(params, language=",".join(languages) or AUTO)
    lexicon = Lexicon.of(languages)
    if len(lexicon):
        names = map(str, texts[len(texts) - getattr(texts, "nr_names", 0) :])
        lexicon = lexicon.without(abbreviations(documents, names))
    return params, lexicon


def weighted(params: TfidfParams, nr_words: int, nr_documents: int) -> TfidfParams:
    """Return the parameters with the weight of pieces filled in; it is lower for long texts."""
    if params.piece_weight is not None or not params.pieces:
        return params
    weights = _WEIGHTS_OF_COMPOUNDS if first_language(params.language) in WITH_COMPOUNDS else _WEIGHTS
    return dataclasses.replace(params, piece_weight=weights[nr_words > _LONG_TEXT * nr_documents])


def count_terms(texts: Texts, params: TfidfParams, lexicon: Lexicon, threads: int, progress: Progress) -> Counts:
    """Count the n-grams and pieces of texts, which is the first half of fitting."""
    ngrams, pieces = NgramCounter(), NgramCounter()
    nr_words = 0
    for batch, split in map_in_order(splitter(params, lexicon), text_batches(texts), threads):
        ngrams.add_words(split.lemmas(ngrams.add(split.keys, split.row_splits), lexicon))
        new = pieces.add(split.pieces[:, np.newaxis], split.piece_splits)
        pieces.add_words(split.piece_names(new, params.pieces))
        nr_words += len(split.ends)
        progress.add(len(batch))
    return Counts(ngrams.counted(), pieces.counted(), ngrams.nr_rows, nr_words)
