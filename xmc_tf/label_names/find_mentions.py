"""Find label names in texts with compiled code."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np

from xmc_tf.common.array_views import kernel_view
from xmc_tf.common.errors import InputError
from xmc_tf.common.threads import map_in_order
from xmc_tf.data import Texts
from xmc_tf.label_names.index import NameIndex
from xmc_tf.label_names.kernels import count_words, match_names
from xmc_tf.label_names.reading import WordOptions

_BYTES = 1 << 20  # of text in a batch
_TEXTS_PER_READ = 256
_Batch: TypeAlias = tuple[np.ndarray, np.ndarray]
_KINDS = (np.int32, np.int8, np.float32, np.int32, np.float32, np.int8)  # of the columns of matches
R = TypeVar("R")


class Matches(NamedTuple):
    """The names that match each text, in CSR form: the matches of text i are at ``splits[i]`` to ``splits[i + 1]``."""

    splits: np.ndarray  # int64 [texts + 1]
    names: np.ndarray  # int32
    grades: np.ndarray  # int8: EXACT; INFLECTED: some words match by prefix only; PARTIAL: at least half the weight
    coverage: np.ndarray  # float32: the share of the name's weight that occurs
    counts: np.ndarray  # int32: how often the rarest of its words in the text occurs
    position: np.ndarray  # float32: where the last of its words first occurs, as a share of the text's characters
    inside: np.ndarray  # int8: 1 if each of its words is also in a longer name that occurs as a whole

    def only(self, wanted: np.ndarray) -> "Matches":
        before = np.concatenate([[0], np.cumsum(wanted)])
        return Matches(before[self.splits], *(column[wanted] for column in self[1:]))


def find_matches(index: NameIndex, texts: Texts, reading: WordOptions, threads: int = -1) -> Matches:
    """Find the names that match each text. The result does not depend on the number of threads."""
    arrays = tuple(kernel_view(array, array.dtype) for array in index)
    held = reading.for_kernels()

    def match(batch: _Batch) -> list[np.ndarray]:
        counts, columns = match_names(*batch, held, *arrays)
        return [counts, *(column[: counts.sum()].astype(kind) for column, kind in zip(columns, _KINDS, strict=True))]

    parts = list(_mapped(match, texts, threads))
    counts = np.concatenate([np.zeros(0, np.int64), *(part[0] for part in parts)])
    splits = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    columns = (
        np.concatenate([np.zeros(0, kind), *(part[place] for part in parts)]) for place, kind in enumerate(_KINDS, 1)
    )
    return Matches(splits, *columns)


def count_documents(words: np.ndarray, texts: Texts, reading: WordOptions, threads: int = -1) -> np.ndarray:
    """Return the number of texts that contain each word. ``words`` are ascending hashes of prefixes."""
    words, held = kernel_view(words, np.int64), reading.for_kernels()
    total = np.zeros(len(words), np.int64)
    for counts in _mapped(lambda batch: count_words(*batch, held, words), texts, threads):
        total += counts
    return total


def _mapped(work: Callable[[_Batch], R], texts: Texts, threads: int) -> Iterator[R]:
    """Yield the result of each batch of texts, in order, computed by threads."""
    if isinstance(texts, bytes | str):
        raise InputError("a single text was given", expected="a sequence of texts", fix="pass a list: [text]")
    # A file is read in parts, because it may not fit into memory.
    each = chain.from_iterable(texts.batches(_TEXTS_PER_READ)) if hasattr(texts, "batches") else texts
    for _, result in map_in_order(work, _batches(each), threads):
        yield result


def _batches(texts: Iterable[str] | Iterable[bytes]) -> Iterator[_Batch]:
    """Yield batches of texts as concatenated bytes with offsets."""
    lines: list[bytes] = []
    size = 0
    for text in texts:
        line = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
        lines.append(line)
        size += len(line)
        if size >= _BYTES:
            yield _joined(lines)
            lines, size = [], 0
    if lines:
        yield _joined(lines)


def _joined(lines: Sequence[bytes]) -> _Batch:
    offsets = np.zeros(len(lines) + 1, np.int64)
    np.cumsum([len(line) for line in lines], out=offsets[1:])
    return kernel_view(np.frombuffer(b"".join(lines) + b"\0", np.uint8), np.uint8), offsets
