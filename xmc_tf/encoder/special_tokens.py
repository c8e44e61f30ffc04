"""Special tokens that stand in the text itself, such as "[SEP]": one point each, above all characters."""

from typing import Any

import tensorflow as tf

from xmc_tf.common.errors import InputError
from xmc_tf.encoder.code_points import SPECIAL, Runs, keep_only, starts_of

# What Rust, in which tokenizers is written, calls whitespace.
WHITESPACE = (
    *(*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680),
    *(*range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000),
)


class SpecialTokens:
    """Finds special tokens in texts.

    Args:
        added: the entries "added_tokens" of tokenizer.json.

    Raises:
        InputError: when they are of a kind that cannot be found this way.
    """

    def __init__(self, added: list[dict[str, Any]]) -> None:
        self._tokens = [(token["content"], int(token["id"]), token["lstrip"], token["rstrip"]) for token in added]
        for token in added:
            if token["single_word"]:
                raise no_twin(f"its token {token['content']!r} counts as a whole word only")
        contents = [content for content, *_ in self._tokens]
        for one in contents:
            for other in contents:
                # Which of two overlapping ones counts would depend on what was found before them.
                overlap = any(one.endswith(other[:size]) for size in range(1, len(other)))
                if not one or (one != other and one in other) or overlap:
                    raise no_twin(f"its special tokens {one!r} and {other!r} overlap")

    def mark(self, runs: Runs) -> Runs:
        """Put one point in the place of each special token, `SPECIAL` above its number."""
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
                covered |= _shifted(found, shift)
            if lstrip:
                covered |= _spaces_before(runs, found)
            if rstrip:
                last = _shifted(found, len(content) - 1)
                covered |= _spaces_before(Runs(points[::-1], -rows[::-1]), last[::-1])[::-1]
        return keep_only(Runs(marked, rows), ~covered)


def is_special(points: tf.Tensor) -> tf.Tensor:
    """Whether each point stands for a special token."""
    return points >= SPECIAL


def segment_starts(runs: Runs) -> tf.Tensor:
    """Whether something new begins at each point: a text, a special token, or text behind one."""
    special = is_special(runs.points)
    behind = tf.concat([tf.zeros_like(special[:1]), special[:-1]], axis=0)
    return starts_of(runs.rows) | special | behind


def _ahead(runs: Runs, longest: int) -> list[tf.Tensor]:
    """Of each point the one that stands so many places on, -1 where its row has ended."""
    points, rows = runs
    found = []
    for offset in range(longest):
        pad = [[0, tf.minimum(offset, tf.size(points))]]
        same = tf.pad(rows[offset:], pad, constant_values=-1) == rows
        found.append(tf.where(same, tf.pad(points[offset:], pad, constant_values=-1), -1))
    return found


def _shifted(flags: tf.Tensor, by: int) -> tf.Tensor:
    return tf.pad(flags, [[by, 0]])[: tf.size(flags)]


def _spaces_before(runs: Runs, found: tf.Tensor) -> tf.Tensor:
    """The whitespace that stands directly before the places that were found."""
    points, rows = runs
    space = is_whitespace(points)
    others = tf.where(~space)[:, 0]
    here = tf.range(tf.size(points, out_type=tf.int64))
    place = tf.searchsorted(others, here, side="left", out_type=tf.int64)
    # Where nothing but whitespace follows, the place itself stands in: it is whitespace, and so no match.
    following = tf.gather(tf.concat([others, tf.zeros([1], tf.int64)], 0), place)
    following = tf.where(place < tf.size(others, out_type=tf.int64), following, here)
    return space & tf.gather(found, following) & (tf.gather(rows, following) == rows)


def is_whitespace(points: tf.Tensor) -> tf.Tensor:
    """Whether each character is whitespace to tokenizers."""
    return tf.reduce_any(points[:, None] == tf.constant(WHITESPACE, tf.int32), axis=1)


def no_twin(reason: str) -> InputError:
    """The error for a tokenizer that cannot be rebuilt of TensorFlow's ops."""
    return InputError(
        f"the encoder's tokenizer cannot run in the graph: {reason}",
        fix="serve the signature that takes token ids, and tokenize in the client",
    )
