"""Process texts in batches with several threads, and hold the arrays that the kernels return."""

from collections.abc import Callable, Iterator
from itertools import chain
from typing import NamedTuple

import numpy as np

from xmc_tf.common.array_views import kernel_view
from xmc_tf.common.errors import InputError
from xmc_tf.data import Texts
from xmc_tf.features.characters import character_table
from xmc_tf.features.kernels.pieces import BEGIN, END, cut_pieces
from xmc_tf.features.kernels.weights import NORMS, weigh_texts
from xmc_tf.features.kernels.words import split_texts
from xmc_tf.features.vocabulary import Vocabulary
from xmc_tf.params import TfidfParams
from xmc_tf.words.kernels import key_table
from xmc_tf.words.lexicon import Lexicon

# Small batches cost calls; large ones cost cache misses and memory, because the words and keys of a batch take ten
# times its bytes.
_MAX_TEXTS = 2000
_MAX_BYTES = 1 << 20
# Number of texts read from a file at once, so few that even lines of a megabyte fit into memory.
_TEXTS_PER_READ = 256


def text_batches(texts: Texts) -> Iterator[list[bytes]]:
    """Yield batches of texts as bytes. A batch has at most about a megabyte, or is a single longer text."""
    if isinstance(texts, bytes | str):
        raise InputError("a single text was given", expected="a sequence of texts", fix="pass a list: [text]")
    each = chain.from_iterable(texts.batches(_TEXTS_PER_READ)) if hasattr(texts, "batches") else texts
    batch: list[bytes] = []
    size = 0
    for row, text in enumerate(each):
        if not isinstance(text, str | bytes):
            raise InputError(f"text {row} is not a text", expected="str or bytes", received=type(text).__name__)
        # Lone surrogates become "?", which is in no word.
        encoded = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
        if batch and (len(batch) == _MAX_TEXTS or size + len(encoded) > _MAX_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(encoded)
        size += len(encoded)
    if batch:
        yield batch


class SplitTexts(NamedTuple):
    """The words of a batch of texts, with the keys of their lemmas' n-grams and of their pieces."""

    letters: np.ndarray  # uint8, of all words
    ends: np.ndarray  # int64: where each word ends in the letters
    keys: np.ndarray  # int64 [words, ngram_max]: of the n-grams that begin at each word; valid within their text
    row_splits: np.ndarray  # int64 [texts + 1]: where each text's words begin
    sources: np.ndarray  # int64 [words]: the source of each word's lemma
    pieces: np.ndarray  # int64: the keys of the pieces
    word_of_piece: np.ndarray
    piece_splits: np.ndarray  # int64 [texts + 1]: where each text's pieces begin

    def words(self, places: np.ndarray) -> list[bytes]:
        """Return the words at some positions, in lower case if the parameters say so."""
        letters = self.letters.tobytes()
        starts = np.where(places > 0, self.ends[places - 1], 0) if len(self.ends) else places
        ends = self.ends[places]
        return [letters[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]

    def lemmas(self, places: np.ndarray, lexicon: Lexicon) -> list[bytes]:
        """Return the lemmas of the words at some positions."""
        return list(map(lexicon.lemma, self.words(places), self.sources[places].tolist()))

    def piece_names(self, places: np.ndarray, length: int) -> list[bytes]:
        """Return the feature names of some pieces: "talv*" begins a word, "*talvi*" is within one."""
        words = self.word_of_piece[places]
        first = np.searchsorted(self.word_of_piece, words)
        names = []
        for word, at in zip(self.words(words), (places - first).tolist(), strict=True):
            piece = (chr(BEGIN) + word.decode("utf-8", "replace") + chr(END))[at : at + length]
            before, after = ("" if at == 0 else "*"), ("" if piece[-1] == chr(END) else "*")
            names.append((before + piece.strip(chr(BEGIN) + chr(END)) + after).encode())
        return names


def splitter(params: TfidfParams, lexicon: Lexicon) -> Callable[[list[bytes]], SplitTexts]:
    """Return a function that splits a batch of texts into words and keys."""
    table = character_table(params.lowercase, params.splits_scripts)
    arrays = lexicon.arrays

    def split(batch: list[bytes]) -> SplitTexts:
        words = split_texts(*_joined(batch), table, params.min_word_length, params.ngram_max, arrays)
        return SplitTexts(*words, *cut_pieces(words[0], words[1], words[3], params.pieces))

    return split


def weigher(
    params: TfidfParams, vocabulary: Vocabulary, lexicon: Lexicon
) -> Callable[[list[bytes]], tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return a function that computes the features of a batch of texts: text boundaries, features, and weights."""
    arguments = (
        character_table(params.lowercase, params.splits_scripts),
        params.min_word_length,
        params.ngram_max,
        params.pieces,
        key_table(kernel_view(vocabulary.keys, np.int64)),
        kernel_view(vocabulary.columns, np.int32),
        kernel_view(vocabulary.idf, np.float32),
        params.sublinear_tf,
        NORMS.index(params.norm),
        lexicon.arrays,
    )
    return lambda batch: weigh_texts(*_joined(batch), *arguments)


def _joined(batch: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Concatenate the bytes of all texts; return them and where each text begins."""
    offsets = np.zeros(len(batch) + 1, np.int64)
    np.cumsum([len(text) for text in batch], out=offsets[1:])
    return kernel_view(np.frombuffer(b"".join(batch), np.uint8), np.uint8), offsets
