"""Texts as code points in the TensorFlow graph: tables that map single characters, and special tokens like "[SEP]"."""

import json
from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tokenizers import Tokenizer, models

from xmc_tf.common.errors import InputError

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

# The characters that Rust, the language of the tokenizers library, considers whitespace.
WHITESPACE = (
    *(*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680),
    *(*range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000),
)


class Runs(NamedTuple):
    """The code points of several texts, concatenated."""

    points: tf.Tensor  # int32 [C]; values from `SPECIAL` on are special tokens, not characters
    rows: tf.Tensor  # int64 [C], ascending: the text of each code point

    def kept(self, flags: tf.Tensor) -> "Runs":
        return self.at(places_of(flags))

    def at(self, places: tf.Tensor) -> "Runs":
        return Runs(tf.gather(self.points, places), tf.gather(self.rows, places))

    def special(self) -> tf.Tensor:
        return self.points >= SPECIAL

    def whitespace(self) -> tf.Tensor:
        """Return a mask of the points that the tokenizers library treats as whitespace."""
        return tf.reduce_any(self.points[:, None] == tf.constant(WHITESPACE, tf.int32), axis=1)

    def segment_starts(self) -> tf.Tensor:
        """Return a mask of segment starts: the first point of a text, a special token, and the point after one."""
        special = self.special()
        return starts_of(self.rows) | special | shifted(special)


def decode(texts: tf.Tensor) -> Runs:
    """Decode UTF-8 strings [n] to code points; invalid bytes become U+FFFD."""
    ragged = tf.strings.unicode_decode(texts, "UTF-8", errors="replace", replace_control_characters=False)
    return Runs(ragged.values, rows_of(ragged.row_splits))


def pieces_of(tokenizer: Any, words: Runs, heads: Runs) -> tuple[tf.Tensor, tf.Tensor]:
    """Return each piece's int32 id and text number. ``words`` has a row per word, ``heads`` each word's first point."""
    splits = splits_of(words.rows, tf.size(heads.rows, out_type=tf.int64))
    ragged = tf.RaggedTensor.from_row_splits(words.points, splits, validate=False)
    pieces = tokenizer.tokenize(tf.strings.unicode_encode(ragged, "UTF-8", errors="replace"))
    head = heads.at(rows_of(pieces.row_splits))
    return tf.where(head.special(), head.points - SPECIAL, pieces.values), head.rows


class CharacterTable(tf.Module):
    """A map from each code point to zero or more characters, regardless of its neighbors; None means unchanged."""

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
        """Return 0 for each character that is unchanged, otherwise 1 plus the number of its replacement."""
        characters = tf.where(points < self._size, points, 0)
        page = tf.gather(self._page_of, characters // _PAGE)
        kinds = tf.gather(self._pages, page * _PAGE + characters % _PAGE)
        return tf.where(points < self._size, kinds, _KEEP)


def every_character() -> list[str]:
    """Return every character that a Unicode version may define, except in the private-use planes 15 and 16."""
    return [chr(point) for first, last in _ASSIGNED for point in range(first, last) if point not in _SURROGATES]


def tokenizer_with(**parts: Any) -> Tokenizer:
    """Return a tokenizer with only the given parts of a JSON configuration, so that they can be called separately."""
    return Tokenizer.from_str(json.dumps({**json.loads(Tokenizer(models.BPE()).to_str()), **parts}))


def map_every_character(function: Callable[[str], list[str]]) -> list[str | None]:
    """Return, for each code point, the output of a function that splits texts into words; None if it is unchanged."""
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
    return tf.squeeze(tf.where(flags), axis=1)


def rows_of(splits: tf.Tensor) -> tf.Tensor:
    return tf.searchsorted(splits, tf.range(splits[-1]), side="right", out_type=tf.int64) - 1


def splits_of(rows: tf.Tensor, nr_rows: tf.Tensor) -> tf.Tensor:
    """Return the row splits for ascending row numbers."""
    return tf.searchsorted(rows, tf.range(nr_rows + 1), side="left", out_type=tf.int64)


def positions_in_rows(rows: tf.Tensor) -> tf.Tensor:
    """Return the position of each entry within its row; the row numbers must be ascending."""
    here = tf.range(tf.size(rows, out_type=tf.int64))
    return here - tf.searchsorted(rows, rows, side="left", out_type=tf.int64)


def shifted(flags: tf.Tensor, by: int = 1) -> tf.Tensor:
    """Return the flags moved ``by`` places to the right; the first places become False."""
    return tf.pad(flags, [[by, 0]])[: tf.size(flags)]


def starts_of(rows: tf.Tensor) -> tf.Tensor:
    return tf.concat([tf.ones_like(rows[:1], tf.bool), rows[1:] != rows[:-1]], axis=0)


class SpecialTokens:
    """A finder of special tokens in texts; tokenizer.json lists them as "added_tokens"."""

    def __init__(self, added: list[dict[str, Any]]) -> None:
        self._tokens = [(token["content"], int(token["id"]), token["lstrip"], token["rstrip"]) for token in added]
        for token in added:
            if token["single_word"]:
                raise cannot_run_in_graph(f"its token {token['content']!r} is matched as a whole word only")
        contents = [content for content, *_ in self._tokens]
        for one, other in product(contents, repeat=2):
            # The first match would decide which of two overlapping tokens counts.
            overlap = any(one.endswith(other[:size]) for size in range(1, len(other)))
            if not one or (one != other and one in other) or overlap:
                raise cannot_run_in_graph(f"its special tokens {one!r} and {other!r} overlap")

    def mark(self, runs: Runs) -> Runs:
        """Replace each special token by a single code point, which is `SPECIAL` plus the token's id."""
        if not self._tokens:
            return runs
        points, rows = runs
        # Only characters that may begin a token are compared: Llama 3 has 256 tokens, each of some 27 characters.
        firsts = sorted({ord(content[0]) for content, *_ in self._tokens})
        places = places_of(tf.reduce_any(points[:, None] == tf.constant(firsts), axis=1))
        longest = max(len(content) for content, *_ in self._tokens)
        there = places[:, None] + tf.range(longest, dtype=tf.int64)
        later, row = (tf.gather(tf.pad(one, [[0, longest]], constant_values=-1), there) for one in runs)
        later = tf.where(row == row[:, :1], later, -1)
        ids = tf.fill(tf.shape(places), -1)
        ends = places
        for content, number, *_ in self._tokens:
            found = tf.reduce_all(later[:, : len(content)] == [ord(character) for character in content], axis=1)
            ids, ends = tf.where(found, number, ids), tf.where(found, places + len(content), ends)
        here = places_of(ids >= 0)
        places, ids, ends = (tf.gather(one, here) for one in (places, ids, ends))
        marked = tf.tensor_scatter_nd_update(points, places[:, None], SPECIAL + ids)
        # A token covers the characters behind its first one.
        bounds = tf.concat([places + 1, ends], axis=0)[:, None]
        steps = tf.scatter_nd(bounds, tf.repeat([1, -1], tf.size(places)), [tf.size(points, out_type=tf.int64) + 1])
        covered = tf.cumsum(steps)[:-1] > 0
        for content, number, lstrip, rstrip in self._tokens:
            found = marked == SPECIAL + number if lstrip or rstrip else None
            if lstrip:
                covered |= _spaces_before(runs, found)
            if rstrip:
                last = shifted(found, len(content) - 1)
                covered |= _spaces_before(Runs(points[::-1], -rows[::-1]), last[::-1])[::-1]
        return Runs(marked, rows).kept(~covered)


def ahead(runs: Runs, longest: int) -> list[tf.Tensor]:
    """Return, for each offset below ``longest``, the code point that many places ahead; -1 beyond the end of a row."""
    points, rows = runs
    found = []
    for offset in range(longest):
        pad = [[0, tf.minimum(offset, tf.size(points))]]
        same = tf.pad(rows[offset:], pad, constant_values=-1) == rows
        found.append(tf.where(same, tf.pad(points[offset:], pad, constant_values=-1), -1))
    return found


def _spaces_before(runs: Runs, found: tf.Tensor) -> tf.Tensor:
    """Return a mask of the whitespace that directly precedes the flagged places."""
    points, rows = runs
    space = runs.whitespace()
    others = tf.where(~space)[:, 0]
    here = tf.range(tf.size(points, out_type=tf.int64))
    place = tf.searchsorted(others, here, side="left", out_type=tf.int64)
    # If only whitespace follows, the place itself is used: it is whitespace, so not a match.
    following = tf.gather(tf.concat([others, tf.zeros([1], tf.int64)], 0), place)
    following = tf.where(place < tf.size(others, out_type=tf.int64), following, here)
    return space & tf.gather(found, following) & (tf.gather(rows, following) == rows)


def flat(config: dict[str, Any] | None, inner: str) -> list[dict[str, Any]]:
    """Return the parts of a sequence in tokenizer.json as a flat list; sequences may be nested."""
    if config is None or config["type"] != "Sequence":
        return [config] if config else []
    return [part for one in config[inner] for part in flat(one, inner)]


def cannot_run_in_graph(reason: str) -> InputError:
    """Return the InputError for a tokenizer that TensorFlow ops cannot reproduce."""
    return InputError(
        f"the encoder's tokenizer cannot run in the graph: {reason}",
        fix="serve the signature that takes token ids, and tokenize in the client",
    )
