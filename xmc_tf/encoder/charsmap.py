"""SentencePiece's compiled character map as TensorFlow ops."""

import struct
import unicodedata
from functools import lru_cache

import numpy as np
import tensorflow as tf
from tokenizers.normalizers import Precompiled

from xmc_tf.encoder.code_points import (
    NR_CODE_POINTS,
    CharacterTable,
    Runs,
    ahead,
    cannot_run_in_graph,
    every_character,
    places_of,
)

_SHORT = 6  # bytes
_LONGEST_ENTRY = 3  # characters: three code points fit into a key of 63 bits
_SHIFT = 1 << 21

_JOINS, _CONTROL, _PREPENDED, _SINGLE = 1, 2, 4, 8

# Characters that stick to the next one: the only property of clusters that the tokenizers library does not reveal.
_STICKING_FORWARD = (
    *(*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0xD4E, 0x110BD, 0x110CD, 0x111C2, 0x111C3, 0x1193F),
    *(0x11941, 0x11A3A, *range(0x11A84, 0x11A8A), 0x11D46, 0x11F02),
)


class Charsmap(tf.Module):
    """A normalizer that replaces characters and short grapheme clusters as the tokenizers library does."""

    # A cluster of less than six bytes that begins with an entry of the map is replaced as a whole by the shortest such
    # entry. In other clusters, characters are replaced one by one.

    def __init__(self, compiled: bytes) -> None:
        super().__init__(name="charsmap")
        entries = read_charsmap(compiled)
        outputs: list[str | None] = [None] * NR_CODE_POINTS
        flags = _cluster_flags().copy()
        several: list[tuple[int, str]] = []
        for key, value in entries.items():
            if len(key) == 1:
                outputs[ord(key)] = value
                flags[ord(key)] |= _SINGLE
            # An entry that begins with another entry is never used.
            elif len(key.encode()) < _SHORT and not any(key[:size] in entries for size in range(1, len(key))):
                if len(key) > _LONGEST_ENTRY:
                    raise cannot_run_in_graph(f"its character map has an entry of {len(key)} characters")
                first, second, third = (*map(ord, key), 0)[:3]
                several.append(((first * _SHIFT + second) * _SHIFT + third, value))
        several.sort()
        # Replacements of several characters follow those of single characters in the table.
        self._table = CharacterTable([*outputs, *(value for _, value in several)])
        keys = np.array([*(key for key, _ in several), np.iinfo(np.int64).max], np.int64)
        self._keys = tf.Variable(keys, trainable=False, name="keys")
        self._flags = tf.Variable(flags, trainable=False, name="flags")

    def __call__(self, runs: Runs) -> Runs:
        points = tf.cast(runs.points, tf.int64)
        flags = tf.gather(self._flags, tf.minimum(runs.points, NR_CODE_POINTS - 1))
        heads = runs.segment_starts() | ~_sticks(runs.points, flags)
        cluster = tf.cumsum(tf.cast(heads, tf.int64)) - 1
        # The length of each character in UTF-8.
        bytes_ = 1 + tf.add_n([tf.cast(runs.points >= limit, tf.int32) for limit in (0x80, 0x800, 0x10000)])
        size = tf.math.segment_sum(bytes_, cluster)
        short = tf.gather(size, cluster) < _SHORT
        _, second, third = ahead(Runs(points, cluster), 3)
        two = (points * _SHIFT + second) * _SHIFT
        found_two, place_two = self._find(two, heads & short & (second > 0))
        found_three, place_three = self._find(two + third, heads & short & (third > 0))
        single = _has(flags, _SINGLE) & heads & short
        place = tf.where(found_two, place_two, place_three)
        replaced = tf.where((found_two | found_three) & ~single, NR_CODE_POINTS + place, runs.points)
        whole = tf.gather(single | found_two | found_three, places_of(heads))
        # Of a cluster that is replaced as a whole, only the head is kept.
        return self._table(Runs(replaced, runs.rows).kept(heads | ~tf.gather(whole, cluster)))

    def _find(self, keys: tf.Tensor, where: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        place = tf.searchsorted(self._keys, keys)
        return where & (tf.gather(self._keys, place) == keys), place


def read_charsmap(compiled: bytes) -> dict[str, str]:
    """Decode the replacements in ``precompiled_charsmap``: a double-array trie of keys, followed by the values."""
    (size,) = struct.unpack_from("<I", compiled)
    units = np.frombuffer(compiled, "<u4", size // 4, 4).astype(np.int64)
    values = compiled[4 + size :]
    labels = np.arange(1, 256)
    entries: dict[str, str] = {}
    todo = [(b"", _child(units, 0))]
    while todo:
        key, node = todo.pop()
        children = node ^ labels
        inside = children < len(units)
        children, found = children[inside], labels[inside]
        right = (units[children] & 0x800000FF) == found
        for child, label in zip(children[right].tolist(), found[right].tolist(), strict=True):
            longer, below = key + bytes([label]), _child(units, child)
            if units[child] >> 8 & 1:
                start = int(units[below] & 0x7FFFFFFF)
                entries[longer.decode()] = values[start : values.index(b"\0", start)].decode()
            todo.append((longer, below))
    return dict(sorted(entries.items()))


def _child(units: np.ndarray, node: int) -> int:
    """Return the offset of a node's children; XOR it with a child's label to get the child's index."""
    unit = int(units[node])
    return node ^ ((unit >> 10) << ((unit & 1 << 9) >> 6))


@lru_cache(maxsize=1)
def _cluster_flags() -> np.ndarray:
    """Return bit flags that describe the role of each character in grapheme clusters."""
    flags = np.zeros(NR_CODE_POINTS, np.uint8)
    # A map that replaces a by b: characters in the same cluster after the a disappear with it.
    units = np.zeros(512, "<u4")
    units[0], units[256 + 97], units[256 + 96] = 256 << 10, 1 << 10 | 1 << 8 | 97, 1 << 31
    ask = Precompiled(struct.pack("<I", units.nbytes) + units.tobytes() + b"b\0")
    characters = [character for character in every_character() if character != "\n"]
    answers = ask.normalize_str("".join(f"a{character}\n" for character in characters)).split("\n")
    for character, answer in zip(characters, answers, strict=False):
        flags[ord(character)] = _JOINS * (answer == "b")
    for character in characters:
        if unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp") and not flags[ord(character)]:
            flags[ord(character)] = _CONTROL
    flags[ord("\n")] = _CONTROL
    flags[list(_STICKING_FORWARD)] = _PREPENDED
    return flags


def _has(flags: tf.Tensor, bit: int) -> tf.Tensor:
    return tf.bitwise.bitwise_and(flags, tf.constant(bit, tf.uint8)) > 0


def _sticks(points: tf.Tensor, flags: tf.Tensor) -> tf.Tensor:
    """Return a mask of the characters that belong to the same grapheme cluster as the preceding character."""
    before = tf.concat([points[:1], points[:-1]], axis=0)
    flags_before = tf.concat([flags[:1], flags[:-1]], axis=0)
    plain = ~_has(flags, _CONTROL) & ~_has(flags_before, _CONTROL)
    sticks = plain & (_has(flags, _JOINS) | _has(flags_before, _PREPENDED) | _hangul(before, points))
    return sticks | ((before == 0x0D) & (points == 0x0A))


def _hangul(before: tf.Tensor, points: tf.Tensor) -> tf.Tensor:
    """Return a mask of the characters that belong to the same Korean syllable as the preceding character."""

    def within(points: tf.Tensor, *ranges: tuple[int, int]) -> tf.Tensor:
        return tf.reduce_any([(points >= first) & (points <= last) for first, last in ranges], axis=0)

    leading, vowel = ((0x1100, 0x115F), (0xA960, 0xA97C)), ((0x1160, 0x11A7), (0xD7B0, 0xD7C6))
    trailing, syllable = ((0x11A8, 0x11FF), (0xD7CB, 0xD7FB)), (0xAC00, 0xD7A3)
    open_syllable = within(before, syllable) & ((before - syllable[0]) % 28 == 0)
    return (
        (within(before, *leading) & within(points, *leading, *vowel, syllable))
        | ((within(before, *vowel) | open_syllable) & within(points, *vowel, *trailing))
        | (within(before, *trailing, syllable) & within(points, *trailing))
    )
