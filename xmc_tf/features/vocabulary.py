"""The n-grams that are features: which they are, in what order, what they weigh, what they are called."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.params import TfidfParams

if TYPE_CHECKING:
    from xmc_tf.features.counts import Counted


@dataclass(frozen=True)
class Vocabulary:
    """The features.

    Args:
        keys: int64, the n-gram keys, ascending.
        columns: int32, the feature of each key.
        idf: float32, the inverse document frequency of each feature.
        lines: gives the features' names in UTF-8, one a line. A function, as hardly anybody asks.
    """

    keys: np.ndarray
    columns: np.ndarray
    idf: np.ndarray
    lines: Callable[[], bytes]

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def names(self) -> list[str]:
        """The n-gram that each feature stands for, its words with a space between."""
        return self.lines().decode("utf-8").splitlines()


def choose(counted: "Counted", nr_documents: int, params: TfidfParams) -> Vocabulary:
    """Chooses the features among the n-grams that were counted.

    Of the n-grams that at least ``min_df`` documents hold, the ``max_features`` that occur most often; where
    the number is the same, those of more documents, then those of the smaller key. The features of the most
    documents come first: they are read most often, and so lie together in whatever a solver keeps a feature.

    Raises:
        InputError: when no n-gram is in enough documents.
    """
    kept = np.flatnonzero(counted.documents >= params.min_df)
    if not len(kept):
        raise _nothing_left(counted, nr_documents, params)
    if len(kept) > params.max_features:
        order = np.lexsort((counted.keys[kept], -counted.documents[kept], -counted.total[kept]))
        kept = kept[order[: params.max_features]]
    kept = kept[np.lexsort((counted.keys[kept], -counted.documents[kept]))]
    columns = np.argsort(counted.keys[kept])
    return Vocabulary(
        keys=counted.keys[kept][columns],
        columns=columns.astype(np.int32),
        idf=(np.log((1 + nr_documents) / (1 + counted.documents[kept])) + 1).astype(np.float32),
        lines=_lines(counted, kept),
    )


def _nothing_left(counted: "Counted", nr_documents: int, params: TfidfParams) -> InputError:
    if not len(counted.documents):
        return InputError(
            f"no word in {nr_documents:,} documents",
            expected=f"words of {params.min_word_length} or more letters and digits",
            fix="check that this is the file of the texts, or lower min_word_length",
        )
    most = counted.documents.max()
    return InputError(
        "no feature is left",
        expected=f"words that at least min_df = {params.min_df} documents hold",
        received=f"{nr_documents:,} documents, and no word is in more than {most:,} of them",
        fix=f"set min_df to {most} or less, or give more documents",
    )


def _lines(counted: "Counted", kept: np.ndarray) -> Callable[[], bytes]:
    """The names of the n-grams ``kept``, put together when somebody asks; holds on to their words alone."""
    runs = []  # each n-gram's words, from the last one back; -1 before the first
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
