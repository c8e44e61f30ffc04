"""Texts in batches of bounded size, processed by threads, with results in the order of the texts."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from typing import TypeVar

from xmc_tf.common.errors import InputError
from xmc_tf.common.threads import thread_count
from xmc_tf.data import Texts

T = TypeVar("T")
R = TypeVar("R")

# Small batches cost calls; large ones cost cache misses and memory, because the words and keys of a batch take ten
# times its bytes.
_MAX_TEXTS = 2000
_MAX_BYTES = 1 << 20
# Number of texts read from a file at once, so few that even lines of a megabyte fit into memory.
_TEXTS_PER_READ = 256


def text_batches(texts: Texts) -> Iterator[list[bytes]]:
    """Yield the texts as bytes in batches of at most about a megabyte; a longer text is a batch of its own."""
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


def map_in_order(work: Callable[[T], R], batches: Iterator[T], threads: int) -> Iterator[tuple[T, R]]:
    """Yield each batch and ``work(batch)`` in order, while threads process the next few; ``work`` releases the GIL."""
    threads = thread_count(threads)
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
