"""The n-grams and pieces that were chosen as features: their order, weights and names."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.features.counts import NgramCounts
from xmc_tf.params import TfidfParams


@dataclass(frozen=True)
class Vocabulary:
    """The features of a TF-IDF."""

    keys: np.ndarray  # int64, ascending
    columns: np.ndarray  # int32: the feature of each key
    idf: np.ndarray  # float32, of each feature
    lines: Callable[[], bytes]  # the features' names, one per line; a function, because names are rarely needed

    def __len__(self) -> int:
        return len(self.keys)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the names themselves, because the function that returns them may depend on a file."""
        return type(self), (self.keys, self.columns, self.idf, partial(bytes, self.lines()))

    @property
    def names(self) -> list[str]:
        """The name of each feature: an n-gram, with spaces between its words, or a piece, such as "talv*"."""
        return self.lines().decode("utf-8").splitlines()


class FeatureBlock(NamedTuple):
    """The features of one kind (n-grams or pieces), by descending number of documents."""

    keys: np.ndarray
    documents: np.ndarray
    weight: float
    lines: Callable[[], bytes]


def choose_block(counted: NgramCounts, params: TfidfParams, weight: float = 1.0) -> FeatureBlock:
    """Choose the features of one kind from the counted n-grams or pieces."""
    kept = best(counted.keys, counted.total, counted.documents, params)
    return FeatureBlock(counted.keys[kept], counted.documents[kept].astype(np.int64), weight, lines_of(counted, kept))


def best(keys: np.ndarray, total: np.ndarray, documents: np.ndarray, params: TfidfParams) -> np.ndarray:
    """Return the indices of the n-grams to keep (``min_df``, ``max_features``), by descending number of documents."""
    kept = np.flatnonzero(documents >= params.min_df)
    if len(kept) > params.max_features:
        order = np.lexsort((keys[kept], -documents[kept], -total[kept]))
        kept = kept[order[: params.max_features]]
    return kept[np.lexsort((keys[kept], -documents[kept]))]


def vocabulary_of(blocks: Sequence[FeatureBlock], nr_documents: int) -> Vocabulary:
    """Merge features of several kinds into a vocabulary; the weight of a kind multiplies its features' weights."""
    keys = np.concatenate([block.keys for block in blocks])
    documents = np.concatenate([block.documents for block in blocks])
    weights = np.repeat([block.weight for block in blocks], [len(block.keys) for block in blocks])
    order = np.lexsort((keys, -documents))
    keys, documents = keys[order], documents[order]
    columns = np.argsort(keys)
    idf = (np.log((1 + nr_documents) / (1 + documents)) + 1) * weights[order]

    def lines() -> bytes:
        if len(blocks) == 1:
            return blocks[0].lines()
        each = [line + b"\n" for block in blocks for line in block.lines().split(b"\n")[:-1]]
        return b"".join(each[place] for place in order.tolist())

    return Vocabulary(keys[columns], columns.astype(np.int32), idf.astype(np.float32), lines)


def no_features_error(nr_ngrams: int, most: int, nr_documents: int, params: TfidfParams) -> InputError:
    """Return the error for an empty vocabulary. ``most`` is the maximum number of documents that share an n-gram."""
    if not nr_ngrams:
        return InputError(
            f"no words in {nr_documents:,} documents",
            expected=f"words of {params.min_word_length} or more letters and digits",
            fix="check that this is the file with the texts, or lower min_word_length",
        )
    return InputError(
        "no feature is left",
        expected=f"words in at least min_df = {params.min_df} documents",
        received=f"{nr_documents:,} documents, and no word is in more than {most:,} of them",
        fix=f"set min_df to {most} or less, or give more documents",
    )


def lines_of(counted: NgramCounts, kept: np.ndarray) -> Callable[[], bytes]:
    """Return a function that assembles the names of the n-grams ``kept``; only their words stay in memory."""
    if not len(kept):
        return lambda: b""
    runs = []  # each n-gram's words from last to first; -1 before the first
    entries = kept
    while (entries >= 0).any():
        runs.append(np.where(entries >= 0, counted.word[entries], -1))
        entries = np.where(entries >= 0, counted.prefix[entries], -1)
    used, places = np.unique(np.stack(runs[::-1], axis=1), return_inverse=True)
    places = places.reshape(len(kept), len(runs))
    ends = np.flatnonzero(np.frombuffer(counted.words, np.uint8) == ord("\n"))
    starts = np.concatenate([[0], ends + 1])
    words = [counted.words[starts[word] : ends[word]] if word >= 0 else b"" for word in used]

    def lines() -> bytes:
        before = np.array([word + b" " if word else b"" for word in words], dtype=object)
        last = np.array([word + b"\n" for word in words], dtype=object)
        return b"".join(np.hstack([before[places[:, :-1]], last[places[:, -1:]]]).ravel().tolist())

    return lines
