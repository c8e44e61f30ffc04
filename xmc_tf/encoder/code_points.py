"""Texts as code points in the graph, and tables that map single characters."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tokenizers import Tokenizer, models

NR_CODE_POINTS = 0x110000
SPECIAL = 1 << 21
_SURROGATES = range(0xD800, 0xE000)
_PAGE = 256
_AT_ONCE = 8192
_KEEP = 0

# Planes 4 to 13 have no characters, 15 and 16 are for private use: one character represents each such range.
_ASSIGNED = ((0, 0x40000), (0xE0000, 0xE1000))
_ALIKE = (
    *((plane << 16, (plane << 16) + 0xFFFE) for plane in (*range(4, 14), 15, 16)),
    *(((plane << 16) + 0xFFFE, (plane + 1) << 16) for plane in range(4, 17)),
    (0xE1000, 0xEFFFE),
)


class Runs(NamedTuple):
    """Texts as one sequence of code points."""

    points: tf.Tensor  # int32 [C]; values from `SPECIAL` on are special tokens, not characters
    rows: tf.Tensor  # int64 [C], ascending: the text of each code point

    def kept(self, flags: tf.Tensor) -> "Runs":
        return self.at(places_of(flags))

    def at(self, places: tf.Tensor) -> "Runs":
        return Runs(tf.gather(self.points, places), tf.gather(self.rows, places))


def decode(texts: tf.Tensor) -> Runs:
    """Convert strings [n] to code points; invalid UTF-8 becomes U+FFFD."""
    ragged = tf.strings.unicode_decode(texts, "UTF-8", errors="replace", replace_control_characters=False)
    return Runs(ragged.values, rows_of(ragged.row_splits))


def encode(runs: Runs, nr_rows: tf.Tensor) -> tf.Tensor:
    """Convert code points to strings [nr_rows]."""
    ragged = tf.RaggedTensor.from_row_splits(runs.points, splits_of(runs.rows, nr_rows), validate=False)
    return tf.strings.unicode_encode(ragged, "UTF-8", errors="replace")


class CharacterTable(tf.Module):
    """A map from each code point to zero or more characters, independent of its neighbors; None keeps the character."""

    def __init__(self, outputs: list[str | None]) -> None:
        super().__init__(name="character_table")
        sequences: dict[str, int] = {}
        kinds = np.zeros(-(-len(outputs) // _PAGE) * _PAGE, np.int32)
        self._size = len(kinds)
        for point, output in enumerate(outputs):
            if output is not None:
                kinds[point] = 1 + sequences.setdefault(output, len(sequences))
        # Most pages of 256 characters are the same, because nothing in them changes.
        numbers: dict[bytes, int] = {}
        page_of = [numbers.setdefault(page.tobytes(), len(numbers)) for page in kinds.reshape(-1, _PAGE)]
        pages = np.frombuffer(b"".join(numbers), np.int32)
        flat = [ord(character) for sequence in sequences for character in sequence]
        splits = np.cumsum([0, *map(len, sequences)])
        # Variables, because constants are copied into every graph that uses them.
        with tf.device("CPU:0"):
            self._page_of = tf.Variable(np.array(page_of, np.int32), trainable=False, name="page_of")
            self._pages = tf.Variable(pages, trainable=False, name="pages")
            self._flat = tf.Variable(np.array([*flat, 0], np.int32), trainable=False, name="flat")
            self._splits = tf.Variable(np.array([*splits, splits[-1]], np.int64), trainable=False, name="splits")

    def __call__(self, runs: Runs) -> Runs:
        kinds = self.kinds(runs.points)
        keep = kinds == _KEEP
        sequence = tf.maximum(kinds - 1, 0)
        starts = tf.gather(self._splits, sequence)
        sizes = tf.where(keep, tf.ones_like(starts), tf.gather(self._splits, sequence + 1) - starts)
        source = tf.repeat(tf.range(tf.size(sizes, out_type=tf.int64)), sizes)
        within = tf.range(tf.size(source, out_type=tf.int64)) - tf.gather(tf.cumsum(sizes, exclusive=True), source)
        # A character that stays is not looked up; its index only has to be within the table.
        stays = tf.gather(keep, source)
        mapped = tf.gather(self._flat, tf.where(stays, tf.zeros_like(within), within + tf.gather(starts, source)))
        points = tf.where(stays, tf.gather(runs.points, source), mapped)
        return Runs(points, tf.gather(runs.rows, source))

    def kinds(self, points: tf.Tensor) -> tf.Tensor:
        """Return 0 for each character that stays, else 1 plus the number of its replacement."""
        characters = tf.where(points < self._size, points, 0)
        page = tf.gather(self._page_of, characters // _PAGE)
        kinds = tf.gather(self._pages, page * _PAGE + characters % _PAGE)
        return tf.where(points < self._size, kinds, _KEEP)


def every_character() -> list[str]:
    """Return all characters of any version of Unicode, except those for private use beyond the first plane."""
    return [chr(point) for first, last in _ASSIGNED for point in range(first, last) if point not in _SURROGATES]


def tokenizer_with(**parts: Any) -> Tokenizer:
    """Return a tokenizer with only some parts of a JSON configuration, to call these."""
    return Tokenizer.from_str(json.dumps({**json.loads(Tokenizer(models.BPE()).to_str()), **parts}))


def map_every_character(function: Callable[[str], list[str]]) -> list[str | None]:
    """Return the replacement of each code point by a function from a text to its words; None if the character stays."""
    # Calling the library for every character makes the graph agree with it even if the versions of Unicode differ.
    outputs: list[str | None] = [None] * NR_CODE_POINTS
    points = [ord(character) for character in every_character()]
    for start in range(0, len(points), _AT_ONCE):
        some = points[start : start + _AT_ONCE]
        # A lone zero marks where the next character begins; no character produces one.
        words = " ".join(function("".join(f" 0 a{chr(point)}a" for point in some)))
        found = f" {words}".split(" 0 ")[1:]
        if len(found) != len(some):
            raise ValueError(f"{len(found)} answers for {len(some)} characters from {some[0]:#x} on")
        for point, answer in zip(some, found, strict=True):
            output = answer[1:-1]
            outputs[point] = None if output == chr(point) else output
    for first, last in _ALIKE:
        joined = " ".join(function(f"a{chr(first)}a"))[1:-1]
        if joined != chr(first):
            outputs[first:last] = [joined] * (last - first)
    return outputs


# The functions below could use ragged tensors and boolean masks, in ten times as many operations. For a single text,
# the number of operations determines the time of tokenizing.


def places_of(flags: tf.Tensor) -> tf.Tensor:
    """Return the indices of the flags [n] that are set."""
    return tf.squeeze(tf.where(flags), axis=1)


def rows_of(splits: tf.Tensor) -> tf.Tensor:
    """Return the row of each entry."""
    return tf.searchsorted(splits, tf.range(splits[-1]), side="right", out_type=tf.int64) - 1


def splits_of(rows: tf.Tensor, nr_rows: tf.Tensor) -> tf.Tensor:
    """Return the row splits of ascending rows."""
    return tf.searchsorted(rows, tf.range(nr_rows + 1), side="left", out_type=tf.int64)


def positions_in_rows(rows: tf.Tensor) -> tf.Tensor:
    """Return the position of each entry within its row; rows ascend."""
    here = tf.range(tf.size(rows, out_type=tf.int64))
    return here - tf.searchsorted(rows, rows, side="left", out_type=tf.int64)


def shifted(flags: tf.Tensor, by: int = 1) -> tf.Tensor:
    """Return the flags some places later."""
    return tf.pad(flags, [[by, 0]])[: tf.size(flags)]


def starts_of(rows: tf.Tensor) -> tf.Tensor:
    """Return whether each entry is the first of its row."""
    return tf.concat([tf.ones_like(rows[:1], tf.bool), rows[1:] != rows[:-1]], axis=0)
