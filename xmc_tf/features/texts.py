"""From batches of texts to arrays: what the compiled functions of TF-IDF take and return."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from xmc_tf.common.kernels import kernel_view
from xmc_tf.features.characters import character_table
from xmc_tf.features.kernels.weights import NORMS, weigh_texts
from xmc_tf.features.kernels.words import split_texts
from xmc_tf.features.vocabulary import Vocabulary
from xmc_tf.params import TfidfParams


class SplitTexts(NamedTuple):
    """The words of a batch of texts and the keys of their n-grams."""

    letters: np.ndarray
    """uint8: the letters of all words."""
    ends: np.ndarray
    """int64: where each word ends in the letters."""
    keys: np.ndarray
    """int64 [words, ngram_max]: the keys of the n-grams that begin at each word; valid within their text."""
    row_splits: np.ndarray
    """int64 [texts + 1]: where each text's words begin."""

    def words(self, places: np.ndarray) -> list[bytes]:
        """Return some words."""
        letters = self.letters.tobytes()
        starts = np.where(places > 0, self.ends[places - 1], 0) if len(self.ends) else places
        return [
            letters[start:end] for start, end in zip(starts.tolist(), self.ends[places].tolist(), strict=True)
        ]  # fmt: skip


def splitter(params: TfidfParams) -> Callable[[list[bytes]], SplitTexts]:
    """Return the function from a batch of texts to words and keys."""
    table = character_table(params.lowercase)

    def split(batch: list[bytes]) -> SplitTexts:
        return SplitTexts(*split_texts(*_joined(batch), table, params.min_word_length, params.ngram_max))

    return split


class Weigher:
    """The function from a batch of texts to features: where each text's end, the features, the weights.

    Args:
        params: how to split and weigh words.
        vocabulary: the features.
    """

    def __init__(self, params: TfidfParams, vocabulary: Vocabulary) -> None:
        keys = kernel_view(vocabulary.keys, np.int64)
        # Keys are hashes, so a prefix with as many values as there are keys leaves one or two to compare.
        bits = max(1, len(keys).bit_length())
        shift = 64 - bits
        sizes = np.bincount((keys >> shift) + (1 << (bits - 1)), minlength=1 << bits)
        buckets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        self._arguments = (
            character_table(params.lowercase),
            params.min_word_length,
            params.ngram_max,
            keys,
            kernel_view(vocabulary.columns, np.int32),
            buckets,
            shift,
            kernel_view(vocabulary.idf, np.float32),
            params.sublinear_tf,
            NORMS.index(params.norm),
        )

    def __call__(self, batch: list[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the splits, features and weights of a batch."""
        return weigh_texts(*_joined(batch), *self._arguments)


def _joined(batch: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Return the bytes of all texts, and where each begins."""
    offsets = np.zeros(len(batch) + 1, np.int64)
    np.cumsum([len(text) for text in batch], out=offsets[1:])
    return kernel_view(np.frombuffer(b"".join(batch), np.uint8), np.uint8), offsets
