"""An index that finds label names most of whose words occur in a text.

Each name is a set of words, weighted by their rarity in the training documents. A name matches a text that contains
words of at least half its weight. To find such names without trying all of them, a name is listed only under its
rarest words: as many as are needed so that the remaining words cannot reach half the weight.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from xmc_tf.common.array_views import kernel_view
from xmc_tf.label_names.kernels import hash_texts
from xmc_tf.label_names.reading import WordOptions

_WEIGHT_UNIT = 16  # weights are whole numbers, so that compiled code and graph get the same sums


class NameIndex(NamedTuple):
    """The names, and the words under which each name is listed."""

    words: np.ndarray  # int64 [words]: hashes of the prefixes of all words of names, ascending
    exact: np.ndarray  # int64 [exact words]: hashes of the whole words, ascending
    labels: np.ndarray  # int32 [names]: the label of each name, ascending
    splits: np.ndarray  # int32 [names + 1]: where each name's words start
    name_words: np.ndarray  # int32: the words of each name, the rarest first
    name_exact: np.ndarray  # int32: the same words, as whole words
    weights: np.ndarray  # int32: their weights
    lists: np.ndarray  # int32 [words + 1]: where the names listed under each word start
    listed: np.ndarray  # int32: names
    places: np.ndarray  # int32: the index of the word in each of these names


class NameWords(NamedTuple):
    """The words of names without their weights, which depend on the training documents; see `NameIndex`."""

    words: np.ndarray
    exact: np.ndarray
    labels: np.ndarray
    splits: np.ndarray
    name_words: np.ndarray  # in the order of the name's text
    name_exact: np.ndarray


def words_of_names(names: Sequence[str], labels: np.ndarray, reading: WordOptions) -> NameWords:
    """Return the distinct words of each name; words with the same prefix count as one."""
    texts = [name.encode("utf-8", "replace") for name in names]
    sizes = np.array([len(text) for text in texts], np.int64)
    data = kernel_view(np.frombuffer(b"".join(texts) + b"\0", np.uint8), np.uint8)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    keys, exact, counts = hash_texts(data, offsets, reading.for_kernels())
    name_of = np.repeat(np.arange(len(names)), counts)
    # Keep the first of the words of a name with the same prefix.
    order = np.lexsort((np.arange(len(keys)), keys, name_of))
    same = (keys[order][1:] == keys[order][:-1]) & (name_of[order][1:] == name_of[order][:-1])
    kept = np.sort(order[np.concatenate([[True], ~same])[: len(order)]])
    words, name_words = np.unique(keys[kept], return_inverse=True)
    whole, name_exact = np.unique(exact[kept], return_inverse=True)
    splits = np.searchsorted(name_of[kept], np.arange(len(names) + 1))
    return NameWords(
        words, whole, np.asarray(labels, np.int32), splits.astype(np.int32), name_words.astype(np.int32),
        name_exact.astype(np.int32),
    )  # fmt: skip


def build_index(names: NameWords, documents_with: np.ndarray, nr_documents: int) -> NameIndex:
    """Build the index. ``documents_with`` is the number of training documents that contain each word."""
    rarity = np.log2((nr_documents + 1) / (np.asarray(documents_with, np.float64) + 1))
    weight_of = (np.round(rarity * _WEIGHT_UNIT) + 1).astype(np.int32)
    return _weighted(names, weight_of)


def extend_index(index: NameIndex, names: NameWords) -> NameIndex:
    """Return a copy with the names of new labels, whose numbers are higher; new words get the median weight."""
    words, exact = np.union1d(index.words, names.words), np.union1d(index.exact, names.exact)
    known = np.zeros(len(index.words), np.int32)
    known[index.name_words] = index.weights
    weight_of = np.full(len(words), int(np.median(known)) if len(known) else _WEIGHT_UNIT, np.int32)
    weight_of[np.searchsorted(words, index.words)] = known

    def joined(old: np.ndarray, old_places: np.ndarray, new: np.ndarray, places: np.ndarray, every: np.ndarray) -> Any:
        both = (np.searchsorted(every, old)[old_places], np.searchsorted(every, new)[places])
        return np.concatenate(both).astype(np.int32)

    together = NameWords(
        words, exact, np.concatenate([index.labels, names.labels]),
        np.concatenate([index.splits, index.splits[-1] + names.splits[1:]]).astype(np.int32),
        joined(index.words, index.name_words, names.words, names.name_words, words),
        joined(index.exact, index.name_exact, names.exact, names.name_exact, exact),
    )  # fmt: skip
    return _weighted(together, weight_of)


def reordered_index(index: NameIndex, order: np.ndarray, labels: np.ndarray) -> NameIndex:
    """Return an index of the names in ``order`` with new ``labels`` (ascending); words keep their weights."""
    weight_of = np.zeros(len(index.words), np.int32)
    weight_of[index.name_words] = index.weights
    sizes = np.diff(index.splits)[order]
    splits = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    entries = np.repeat(index.splits[order] - splits[:-1], sizes) + np.arange(splits[-1])
    some = NameWords(
        index.words, index.exact, labels.astype(np.int32), splits, index.name_words[entries], index.name_exact[entries]
    )
    return _weighted(some, weight_of)


def _weighted(names: NameWords, weight_of: np.ndarray) -> NameIndex:
    """Return an index of names, given the weight of each word."""
    name_of = np.repeat(np.arange(len(names.labels)), np.diff(names.splits))
    weights = weight_of[names.name_words]
    order = np.lexsort((names.name_words, -weights, name_of))
    name_words, name_exact, weights = names.name_words[order], names.name_exact[order], weights[order]
    # A word is listed if it and the words after it have at least half of the name's weight.
    before = np.concatenate([[0], np.cumsum(weights, dtype=np.int64)])
    left = before[names.splits[1:]][name_of] - before[:-1]
    total = (before[names.splits[1:]] - before[names.splits[:-1]])[name_of]
    listed = np.flatnonzero(2 * left >= total)
    by_word = listed[np.argsort(name_words[listed], kind="stable")]
    lists = np.searchsorted(name_words[by_word], np.arange(len(names.words) + 1))
    return NameIndex(
        names.words, names.exact, names.labels, names.splits, name_words, name_exact, weights,
        lists.astype(np.int32), name_of[by_word].astype(np.int32),
        (by_word - names.splits[name_of[by_word]]).astype(np.int32),
    )  # fmt: skip
