"""An index of the hashes, rows and counts of a rank's ids. It is faster than TensorFlow's MutableHashTable."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from xmc_tf.collective.dynamic_tables import kernels
from xmc_tf.collective.tables.bags import Ids
from xmc_tf.common.errors import InputError

# Hashes are in [0, HASHES]: the numbers of an int64 that are not negative.
HASHES = 2**63 - 1
_SHIFTS = (32, 29, 32)
_FACTORS = (0x4BE98134A5976FD3, 0x3BBF2A01CC9AB4A1)  # odd, so that a product modulo 2^63 can be inverted


def hash_ids(ids: Ids) -> Ids:
    """Return the hashes of strings or whole numbers, in the structure of ``ids``. -1 has the same hash as 2^63 - 1."""
    if isinstance(ids, tf.SparseTensor):
        return ids.with_values(_hash(ids.values))
    if isinstance(ids, tf.RaggedTensor):
        return ids.with_flat_values(_hash(ids.flat_values))
    return _hash(tf.convert_to_tensor(ids))


def _hash(ids: tf.Tensor) -> tf.Tensor:
    if ids.dtype == tf.string:
        ids = tf.strings.to_hash_bucket_fast(ids, HASHES)  # "will never change" (TensorFlow's documentation)
    elif not ids.dtype.is_integer:
        raise InputError("invalid ids of a growing table", expected="strings or whole numbers", received=ids.dtype.name)
    mixed = tf.bitwise.bitwise_and(tf.cast(ids, tf.int64), HASHES)
    for shift, factor in zip(_SHIFTS, (*_FACTORS, None), strict=True):
        mixed = tf.bitwise.bitwise_xor(mixed, tf.bitwise.right_shift(mixed, tf.constant(shift, tf.int64)))
        if factor is not None:
            mixed = tf.bitwise.bitwise_and(mixed * tf.constant(factor, tf.int64), HASHES)
    return mixed


# The number of entries and places at first; both double when full.
_FEWEST = 1024
NO_ROW = 0  # the row of an id without one, which stays zero


class FoundIds(NamedTuple):
    """The row of each hash (``NO_ROW`` if it has none), and the rows that were newly assigned to ids."""

    rows: np.ndarray
    new_rows: np.ndarray
    new_hashes: np.ndarray  # of the ids that got them


class IndexedIds(NamedTuple):
    """The ids of an index, with one array per property."""

    hashes: np.ndarray
    counts: np.ndarray  # the number of steps in which the id was seen
    last: np.ndarray  # the last of them
    rows: np.ndarray  # ``NO_ROW`` as long as the id is not admitted


class IdIndex:
    """An index from hashes of ids to rows. An id gets a row in the ``admit_after``-th step in which it is seen."""

    _entries: IndexedIds
    _used: int
    _places: np.ndarray

    def __init__(self, admit_after: int = 1) -> None:
        self.admit_after = admit_after
        self._set(IndexedIds(*(np.empty(0, np.int64) for _ in range(4))), _FEWEST)
        self._free = np.empty(0, np.int64)  # rows of evicted ids
        self.next_row = NO_ROW + 1  # all rows from here on are unused

    @property
    def entries(self) -> IndexedIds:
        """The ids in the order in which they were added. The arrays are views of the index."""
        return IndexedIds(*(values[: self._used] for values in self._entries))

    @property
    def rows(self) -> int:
        """The number of ids that have a row."""
        return self.next_row - 1 - len(self._free)

    def find(self, hashes: np.ndarray) -> np.ndarray:
        rows = np.empty(len(hashes), np.int64)
        kernels.find(self._places, self._entries.hashes, self._entries.rows, hashes, rows)
        return rows

    def see(self, hashes: np.ndarray, step: int) -> FoundIds:
        """Record a step's ids, which may repeat, and return their rows. New ids are added; admitted ones get a row."""
        needed, room = self._used + len(hashes), len(self._entries.hashes)
        if needed > room:
            while room < needed:
                room *= 2
            self._set(self.entries, room)
        rows, new = np.empty(len(hashes), np.int64), np.empty(len(hashes), np.int64)
        counters = np.array([self._used, len(self._free), self.next_row, 0], np.int64)
        kernels.see(self._places, *self._entries, hashes, step, self.admit_after, self._free, counters, rows, new)
        self._used, free, self.next_row, count = (int(counter) for counter in counters)
        self._free = self._free[:free]
        at = new[:count]
        return FoundIds(rows, self._entries.rows[at], self._entries.hashes[at])

    def keep(self, kept: np.ndarray) -> np.ndarray:
        """Remove all entries that the mask ``kept`` excludes, and return the rows that become free."""
        entries = self.entries
        freed = entries.rows[~kept]
        freed = freed[freed != NO_ROW]
        self.replace(IndexedIds(*(values[kept] for values in entries)), np.concatenate([self._free, freed]))
        return freed

    def replace(self, entries: IndexedIds, free: np.ndarray | None = None) -> None:
        """Replace all entries by ``entries``, whose hashes must be distinct. ``free`` lists rows that can be reused."""
        self._free = np.empty(0, np.int64) if free is None else free
        self.next_row = 1 + int(max(entries.rows.max(initial=NO_ROW), self._free.max(initial=NO_ROW)))
        self._set(entries, max(_FEWEST, len(entries.hashes)))

    def _set(self, entries: IndexedIds, room: int) -> None:
        """Copy the entries to arrays of length ``room``, and rebuild the hash table of entry numbers (-1: empty)."""
        self._used = len(entries.hashes)
        self._entries = IndexedIds(*(np.empty(room, np.int64) for _ in range(4)))
        for target, values in zip(self._entries, entries, strict=True):
            target[: self._used] = values
        places = 1 << int(2 * room - 1).bit_length()  # a power of two; at most half of them are taken
        self._places = np.full(places, -1, np.int32 if places <= 2**31 else np.int64)
        kernels.put(self._places, self._entries.hashes[: self._used])
