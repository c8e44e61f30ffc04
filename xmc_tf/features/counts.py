"""Count the documents and occurrences of n-grams in one pass over the texts."""

from typing import NamedTuple

import numpy as np

from xmc_tf.common.compiled import inner, kernel
from xmc_tf.common.errors import InputError

# All data of an n-gram are accessed together, so they share half a cache line.
_ENTRY = np.dtype(
    [
        ("key", np.int64),
        ("total", np.int64),
        ("documents", np.int32),
        ("last_row", np.int32),  # the row counted last, because a row counts once
        ("prefix", np.int32),  # entry of the n-gram without its last word; -1 for a single word
        ("word", np.int32),  # the last word's number, in order of first occurrence
    ]
)
_EMPTY = -1
_MAX_COUNT = 2**31 - 1


class NgramCounts(NamedTuple):
    """All n-grams of the texts, in order of first occurrence."""

    keys: np.ndarray
    total: np.ndarray
    documents: np.ndarray
    prefix: np.ndarray
    word: np.ndarray
    words: bytes  # the different words, one per line


class NgramCounter:
    """Counts n-grams batch by batch. Memory grows only with the number of distinct n-grams."""

    def __init__(self, capacity: int = 1 << 16) -> None:
        self.nr_rows = self._used = self._nr_words = 0
        self._entries = np.empty(capacity, _ENTRY)
        self._slots = np.full(2 * capacity, _EMPTY, np.int32)
        self._words = bytearray()

    def add(self, keys: np.ndarray, row_splits: np.ndarray) -> np.ndarray:
        """Count the n-grams of more documents. Return the indices of new words; pass their texts to `add_words`."""
        self._make_room(self._used + keys.size)
        if self.nr_rows + len(row_splits) > _MAX_COUNT:
            raise InputError(f"there are more than {_MAX_COUNT:,} documents", fix="use a sample of them")
        self._used, new = _count(keys, row_splits, self.nr_rows, self._slots, self._entries, self._used, self._nr_words)
        self.nr_rows += len(row_splits) - 1
        self._nr_words += len(new)
        return new

    def add_words(self, words: list[bytes]) -> None:
        """Add the texts of the words that `add` reported as new."""
        self._words += b"".join(word + b"\n" for word in words)

    def counted(self) -> NgramCounts:
        """Return the counts so far, which are valid until `add` is called again."""
        e = self._entries[: self._used]
        return NgramCounts(e["key"], e["total"], e["documents"], e["prefix"], e["word"], bytes(self._words))

    def _make_room(self, entries: int) -> None:
        if entries > _MAX_COUNT:
            raise InputError(
                f"the texts contain more than {_MAX_COUNT:,} different n-grams",
                fix="set ngram_max to 1, or fit on a sample of the texts",
            )
        if entries > len(self._entries):
            larger = np.empty(max(entries, len(self._entries) * 3 // 2), _ENTRY)
            larger[: self._used] = self._entries[: self._used]
            self._entries = larger
        slots = len(self._slots)
        while slots < 2 * entries:
            slots *= 2
        if slots > len(self._slots):
            self._slots = np.full(slots, _EMPTY, np.int32)
            _rehash(self._slots, self._entries, self._used)


@inner
def _slot(key: int, slots: np.ndarray, entries: np.ndarray) -> int:
    """Return the slot of a key; if the key is new, return the empty slot in which to store it."""
    mask = len(slots) - 1
    # Keys are hashes, but the low bits of a sum are poorly distributed when words repeat.
    slot = (key ^ (key >> 32)) & mask
    while slots[slot] != _EMPTY and entries[slots[slot]].key != key:
        slot = (slot + 1) & mask
    return slot


@kernel
def _count(
    keys: np.ndarray, row_splits: np.ndarray, first_row: int, slots: np.ndarray, entries: np.ndarray, used: int,
    nr_words: int,
) -> tuple[int, np.ndarray]:  # fmt: skip
    """Count n-grams in the table, which must have room. Return its new size and the indices of new words."""
    new = np.empty(len(keys), np.int64)
    nr_new = 0
    # The entry of the n-gram that begins at each word; each iteration makes it one word longer.
    entry_of = np.empty(len(keys), np.int32)
    entry_of_word = entry_of
    for last in range(keys.shape[1]):
        # An n-gram's last word is further on, so all single words must be entered before the first pair.
        if last == 1:
            entry_of_word = entry_of.copy()
        for row in range(len(row_splits) - 1):
            for i in range(row_splits[row], row_splits[row + 1] - last):
                slot = _slot(keys[i, last], slots, entries)
                if slots[slot] == _EMPTY:
                    slots[slot] = used
                    entry = entries[used]
                    entry.key = keys[i, last]
                    entry.total = 0
                    entry.documents = 0
                    entry.last_row = -1
                    if last == 0:
                        entry.prefix = -1
                        entry.word = nr_words + nr_new
                        new[nr_new] = i
                        nr_new += 1
                    else:
                        entry.prefix = entry_of[i]
                        entry.word = entries[entry_of_word[i + last]].word
                    used += 1
                entry = entries[slots[slot]]
                entry.total += 1
                if entry.last_row != first_row + row:
                    entry.last_row = first_row + row
                    entry.documents += 1
                entry_of[i] = slots[slot]
    return used, new[:nr_new]


@kernel
def _rehash(slots: np.ndarray, entries: np.ndarray, used: int) -> None:
    """Insert all entries into an empty table of slots."""
    for entry in range(used):
        slots[_slot(entries[entry].key, slots, entries)] = entry
