"""Special tokens in texts, such as "[SEP]": each becomes one code point above all characters."""

from itertools import product
from typing import Any

import tensorflow as tf

from xmc_tf.common.errors import InputError
from xmc_tf.encoder.code_points import SPECIAL, Runs, shifted, starts_of

# The characters that Rust, the language of the tokenizers library, considers whitespace.
WHITESPACE = (
    *(*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680),
    *(*range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000),
)


class SpecialTokens:
    """A search in texts for special tokens, the "added_tokens" of tokenizer.json."""

    def __init__(self, added: list[dict[str, Any]]) -> None:
        self._tokens = [(token["content"], int(token["id"]), token["lstrip"], token["rstrip"]) for token in added]
        for token in added:
            if token["single_word"]:
                raise cannot_run_in_graph(f"its token {token['content']!r} counts as a whole word only")
        contents = [content for content, *_ in self._tokens]
        for one, other in product(contents, repeat=2):
            # The first match would decide which of two overlapping tokens counts.
            overlap = any(one.endswith(other[:size]) for size in range(1, len(other)))
            if not one or (one != other and one in other) or overlap:
                raise cannot_run_in_graph(f"its special tokens {one!r} and {other!r} overlap")

    def mark(self, runs: Runs) -> Runs:
        """Replace each special token by one code point: `SPECIAL` plus its id."""
        points, rows = runs
        ahead = _ahead(runs, max((len(content) for content, *_ in self._tokens), default=0))
        marked = points
        covered = tf.zeros_like(points, tf.bool)
        for content, number, lstrip, rstrip in self._tokens:
            found = tf.reduce_all(
                tf.stack([ahead[place] == ord(character) for place, character in enumerate(content)]), axis=0
            )
            marked = tf.where(found, SPECIAL + number, marked)
            for shift in range(1, len(content)):
                covered |= shifted(found, shift)
            if lstrip:
                covered |= _spaces_before(runs, found)
            if rstrip:
                last = shifted(found, len(content) - 1)
                covered |= _spaces_before(Runs(points[::-1], -rows[::-1]), last[::-1])[::-1]
        return Runs(marked, rows).kept(~covered)


def is_special(points: tf.Tensor) -> tf.Tensor:
    return points >= SPECIAL


def segment_starts(runs: Runs) -> tf.Tensor:
    """Return whether each point starts a segment: a text, a special token, or text after one."""
    special = is_special(runs.points)
    return starts_of(runs.rows) | special | shifted(special)


def _ahead(runs: Runs, longest: int) -> list[tf.Tensor]:
    """Return for each offset up to ``longest`` the code points that many places later; -1 beyond the end of a row."""
    points, rows = runs
    found = []
    for offset in range(longest):
        pad = [[0, tf.minimum(offset, tf.size(points))]]
        same = tf.pad(rows[offset:], pad, constant_values=-1) == rows
        found.append(tf.where(same, tf.pad(points[offset:], pad, constant_values=-1), -1))
    return found


def _spaces_before(runs: Runs, found: tf.Tensor) -> tf.Tensor:
    """Return the whitespace directly before the given places."""
    points, rows = runs
    space = is_whitespace(points)
    others = tf.where(~space)[:, 0]
    here = tf.range(tf.size(points, out_type=tf.int64))
    place = tf.searchsorted(others, here, side="left", out_type=tf.int64)
    # If only whitespace follows, the place itself is used: it is whitespace, so not a match.
    following = tf.gather(tf.concat([others, tf.zeros([1], tf.int64)], 0), place)
    following = tf.where(place < tf.size(others, out_type=tf.int64), following, here)
    return space & tf.gather(found, following) & (tf.gather(rows, following) == rows)


def is_whitespace(points: tf.Tensor) -> tf.Tensor:
    return tf.reduce_any(points[:, None] == tf.constant(WHITESPACE, tf.int32), axis=1)


def cannot_run_in_graph(reason: str) -> InputError:
    """Return the error for a tokenizer that cannot be rebuilt from TensorFlow ops."""
    return InputError(
        f"the encoder's tokenizer cannot run in the graph: {reason}",
        fix="serve the signature that takes token ids, and tokenize in the client",
    )
