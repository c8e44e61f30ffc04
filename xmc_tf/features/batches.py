"""Texts in batches of bounded size, worked on by threads, the results in the texts' order."""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from typing import TypeVar

from xmc_tf.common.errors import InputError
from xmc_tf.data import TextFile

T = TypeVar("T")
R = TypeVar("R")

# Many small batches cost in calls; large ones in cache misses and in memory, as the words and keys of a batch
# take ten times its bytes.
_MOST_TEXTS = 2000
_MOST_BYTES = 1 << 20
# Texts asked of a file at once, so few that even lines of a megabyte fit.
_READ = 256


class TextRange:
    """Some neighbouring texts of a file, read when they are asked for.

    Args:
        texts: the file.
        first: the first of them.
        last: the one behind the last.
    """

    def __init__(self, texts: TextFile, first: int, last: int) -> None:
        self._texts, self._first, self._last = texts, first, last

    def __len__(self) -> int:
        return self._last - self._first

    def batches(self, size: int) -> Iterator[list[bytes]]:
        """The texts in lists of at most ``size``."""
        return self._texts.batches(size, self._first, self._last)


def text_range(
    texts: TextFile | Sequence[bytes] | Sequence[str], first: int, last: int
) -> TextRange | Sequence[bytes] | Sequence[str]:
    """The texts from ``first`` up to ``last``."""
    return TextRange(texts, first, last) if isinstance(texts, TextFile) else texts[first:last]


def text_batches(texts: TextFile | TextRange | Sequence[bytes] | Sequence[str]) -> Iterator[list[bytes]]:
    """Gives the texts as bytes in batches of about a megabyte at most; a longer text is a batch alone."""
    if isinstance(texts, bytes | str):
        raise InputError("a single text was given", expected="a sequence of texts", fix="pass a list: [text]")
    each = chain.from_iterable(texts.batches(_READ)) if hasattr(texts, "batches") else texts
    batch: list[bytes] = []
    size = 0
    for row, text in enumerate(each):
        encoded = text if isinstance(text, bytes) else _encode(text, row)
        if batch and (len(batch) == _MOST_TEXTS or size + len(encoded) > _MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(encoded)
        size += len(encoded)
    if batch:
        yield batch


def _encode(text: object, row: int) -> bytes:
    if isinstance(text, str):
        return text.encode("utf-8", "replace")  # a lone surrogate has no UTF-8; "?" is in no word either
    raise InputError(f"text {row} is no text", expected="str or bytes", received=type(text).__name__)


def in_order(work: Callable[[T], R], batches: Iterator[T], threads: int) -> Iterator[tuple[T, R]]:
    """Gives each batch and ``work(batch)``, in the batches' order, while threads work on the next few.

    Args:
        work: a function that lets go of Python's lock, as TensorFlow does, or threads gain nothing.
        batches: what to work on; read no further ahead than a few batches.
        threads: how many, -1 for one per core.
    """
    threads = len(os.sched_getaffinity(0)) if threads == -1 else threads
    if threads < 1:
        raise InputError("threads is out of range", expected="-1 or at least 1", received=str(threads))
    first = list(islice(batches, 2))
    batches = chain(first, batches)
    if threads == 1 or len(first) < 2:
        for batch in batches:
            yield batch, work(batch)
        return
    with ThreadPoolExecutor(threads, thread_name_prefix="texts") as pool:
        waiting: deque = deque()
        try:
            for batch in batches:
                waiting.append((batch, pool.submit(work, batch)))
                if len(waiting) > 2 * threads:
                    done, result = waiting.popleft()
                    yield done, result.result()
            while waiting:
                done, result = waiting.popleft()
                yield done, result.result()
        finally:
            for _, result in waiting:
                result.cancel()
