"""Mentions of labels in texts as TensorFlow ops, with the same results as ``xmc_tf.label_names``."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from xmc_tf.label_names import LabelNames
from xmc_tf.label_names.characters import SKIPPED, UNSPACED
from xmc_tf.label_names.kernels import EXACT, FULL, INFLECTED, LONG, LONGEST, NR_GRADES, PARTIAL, PREFIX, SPREAD
from xmc_tf.label_names.mentions import PRECISION_STEPS

_LARGEST = 2**31 - 1


class GraphMentions(NamedTuple):
    """Mentions of labels in texts, with the fields of :class:`xmc_tf.label_names.Mentions`."""

    keys: tf.Tensor  # ascending: document × number of labels + label
    precision: tf.Tensor
    grade: tf.Tensor
    coverage: tf.Tensor
    counts: tf.Tensor
    position: tf.Tensor
    inside: tf.Tensor
    rarity: tf.Tensor
    words: tf.Tensor


class NameMatches(tf.Module):
    def __init__(self, names: LabelNames) -> None:
        super().__init__(name="label_names")
        reading = names.reading
        last = int(np.flatnonzero(reading.characters)[-1]) + 1
        held = names.index._asdict() | {"worth": names.precision.reshape(-1), "characters": reading.characters[:last]}
        if len(reading.forms):
            held |= {name: getattr(reading, name) for name in ("forms", "lemma_of", "lemma_keys", "lemma_exact")}
        self._piece, self._nr_labels = reading.piece, names.nr_labels
        with tf.device("CPU:0"):
            # Never empty: a lookup in an empty variable fails, even if its result is not used.
            self.held = {
                name: tf.Variable(array if len(array) else np.zeros(1, array.dtype), trainable=False, name=name)
                for name, array in held.items()
            }

    def __call__(self, text: tf.Tensor) -> GraphMentions:
        with tf.device("CPU:0"):
            return self._mentions(*self._words(text))

    def _words(self, text: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """Find the words of label names in texts; the results are the arguments of `_mentions`."""
        characters, rows = self._characters(text)
        unspaced = tf.bitwise.bitwise_and(characters, UNSPACED) != 0
        spaced = (characters > 0) & ~unspaced
        same_row = rows[1:] == rows[:-1]
        after = tf.concat([same_row, [False]], axis=0)  # whether a character of the same text follows
        before = tf.concat([[False], same_row], axis=0)
        next_unspaced = after & tf.roll(unspaced, -1, axis=0)
        last_unspaced = before & tf.roll(unspaced, 1, axis=0)
        last_spaced = before & tf.roll(spaced, 1, axis=0)
        starts = (spaced & ~last_spaced) | (unspaced & (next_unspaced | ~last_unspaced))
        start = tf.where(starts)[:, 0]
        is_pair = tf.gather(unspaced & next_unspaced, start)
        # A word ends where the next character is not of its kind; a word of an unspaced script has one or two.
        ends = tf.where(spaced & ~(after & tf.roll(spaced, -1, axis=0)))[:, 0] + 1
        place = tf.searchsorted(ends, start, side="right")
        size = tf.where(is_pair, tf.constant(2, tf.int64), tf.constant(1, tf.int64))
        end = tf.gather(tf.concat([ends, [0]], axis=0), place)
        end = tf.where(tf.gather(unspaced, start), start + size, end)
        characters = tf.cast(characters, tf.int64)
        padded = tf.concat([characters, tf.zeros([1], tf.int64)], axis=0)
        letter = tf.cast(characters > 0, tf.int64)
        lengths = tf.math.unsorted_segment_sum(letter, rows, tf.size(text))
        begins, letters_before = tf.cumsum(lengths, exclusive=True), tf.cumsum(letter, exclusive=True)
        key = self._hash(padded, start, tf.minimum(end, start + PREFIX), SPREAD)
        exact = self._hash(padded, start, tf.minimum(end, start + LONGEST), FULL)
        row = tf.gather(rows, start)
        if "forms" in self.held:
            key, exact = self._lemmas(key, exact)
        if self._piece:
            size = tf.where(tf.gather(unspaced, start), tf.zeros_like(start), end - start)
            count = tf.where(size >= LONG, size - (self._piece - 1), tf.zeros_like(start))
            word, first = _spread(start, start + count)
            piece_ends = first + self._piece
            key = tf.concat([key, self._hash(padded, first, piece_ends, SPREAD)], axis=0)
            exact = tf.concat([exact, self._hash(padded, first, piece_ends, FULL)], axis=0)
            row = tf.concat([row, tf.gather(row, word)], axis=0)
            start = tf.concat([start, first], axis=0)
        pairs, found = self._known(key, row, "words")
        order = tf.argsort(pairs, stable=True)
        distinct, which = tf.unique(tf.gather(pairs, order))
        place = tf.gather(tf.gather(letters_before, start) - tf.gather(begins, row), tf.gather(found, order))
        count = tf.size(distinct)
        counts = tf.math.unsorted_segment_sum(tf.ones_like(which), which, count)
        first_places = tf.math.unsorted_segment_min(place, which, count)
        return distinct, counts, first_places, tf.unique(tf.sort(self._known(exact, row, "exact")[0])).y, lengths

    def _lemmas(self, key: tf.Tensor, exact: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        forms = self.held["forms"].value()
        place = tf.minimum(tf.searchsorted(forms, exact), tf.size(forms) - 1)
        lemma = tf.gather(self.held["lemma_of"], place)
        known = tf.gather(forms, place) == exact
        key = tf.where(known, tf.gather(self.held["lemma_keys"], lemma), key)
        return key, tf.where(known, tf.gather(self.held["lemma_exact"], lemma), exact)

    def _characters(self, text: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Normalize the characters of all texts as in label names; return them, and the text of each character."""
        # The Unicode ops end a string at its first NUL.
        text = tf.strings.regex_replace(text, r"\x00", " ")
        decoded = tf.raw_ops.UnicodeDecode(input=text, input_encoding="UTF-8", errors="replace", Tsplits=tf.int64)
        table = self.held["characters"].value()
        size = tf.size(table)
        codes = decoded.char_values
        mapped = tf.where(codes < size, tf.gather(table, tf.minimum(codes, size - 1)), 0)
        places = tf.range(tf.size(codes, out_type=tf.int64))
        rows = tf.searchsorted(decoded.row_splits[1:], places, side="right", out_type=tf.int64)
        kept = tf.where(mapped != SKIPPED)[:, 0]
        return tf.gather(mapped, kept), tf.gather(rows, kept)

    def _hash(self, characters: tf.Tensor, start: tf.Tensor, end: tf.Tensor, factor: np.int64) -> tf.Tensor:
        """Hash the characters from ``start`` to ``end``: sum up each character times a power of ``factor``."""
        longest = tf.reduce_max(tf.concat([end - start, [1]], axis=0))
        hashed = tf.zeros_like(start)

        def step(at: tf.Tensor, hashed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            place = start + at
            added = (hashed + tf.gather(characters, tf.minimum(place, end))) * tf.constant(factor, tf.int64)
            return at + 1, tf.where(place < end, added, hashed)

        zero = tf.constant(0, tf.int64)
        return tf.while_loop(lambda at, _: at < longest, step, [zero, hashed])[1]

    def _known(self, hashes: tf.Tensor, rows: tf.Tensor, name: str) -> tuple[tf.Tensor, tf.Tensor]:
        """Find the known words; return each (document, word) pair as one number, and its place in ``hashes``."""
        known = self.held[name].value()
        place = tf.minimum(tf.searchsorted(known, hashes), tf.size(known) - 1)
        found = tf.where(tf.gather(known, place) == hashes)[:, 0]
        pairs = tf.gather(rows, found) * tf.size(known, out_type=tf.int64) + tf.cast(tf.gather(place, found), tf.int64)
        return pairs, found

    def _mentions(
        self,
        here: tf.Tensor,  # int64, ascending: document × number of words + word
        counts: tf.Tensor,
        first_places: tf.Tensor,  # number of characters of words before the first occurrence
        here_exact: tf.Tensor,  # like `here`, for exact forms
        lengths: tf.Tensor,  # number of characters of each text's words
    ) -> GraphMentions:
        held = self.held
        nr_words = tf.size(held["words"], out_type=tf.int64)
        rows, words = here // nr_words, here % nr_words
        # The names listed under each word.
        lists = held["lists"].value()
        source, at = _spread(tf.gather(lists, words), tf.gather(lists, words + 1))
        name, listed_place = tf.gather(held["listed"], at), tf.gather(held["places"], at)
        row = tf.gather(rows, source)
        # All words of each name.
        splits = held["splits"].value()
        first = tf.gather(splits, name)
        one, at = _spread(first, tf.gather(splits, name + 1))
        of_row = tf.gather(row, one)
        pair = of_row * nr_words + tf.cast(tf.gather(held["name_words"], at), tf.int64)
        there = _contains(here, pair)
        place = tf.where(there, tf.searchsorted(here, pair), 0)
        nr_exact = tf.size(held["exact"], out_type=tf.int64)
        same = _contains(here_exact, of_row * nr_exact + tf.cast(tf.gather(held["name_exact"], at), tf.int64))
        weights = tf.gather(held["weights"], at)
        count = tf.size(name)
        earlier = there & (at - tf.gather(first, one) < tf.gather(listed_place, one))
        none = tf.zeros_like(weights)
        parts = [weights, tf.where(there, weights, none), tf.where(there & ~same, 1, none), tf.cast(earlier, tf.int32)]
        sums = tf.math.unsorted_segment_sum(tf.stack(parts, axis=1), one, count)
        whole, matched, inflected, found_before = tf.unstack(sums, num=4, axis=1)
        grade = tf.where(matched < whole, PARTIAL, tf.where(inflected > 0, INFLECTED, EXACT))
        words = tf.gather(splits, name + 1) - first
        full = (matched == whole) & (found_before == 0)
        # The number of words of the longest whole name with each word. A lookup in nothing fails, even if unused.
        longest = tf.where(tf.gather(full, one), tf.gather(words, one), 0)
        longest = tf.math.unsorted_segment_max(longest, place, tf.maximum(tf.size(here), 1))
        fewest = tf.where(there, tf.gather(tf.pad(counts, [[0, 1]]), place), _LARGEST)
        latest = tf.where(there, tf.gather(tf.pad(first_places, [[0, 1]]), place), 0)
        inside = tf.cast(there & (tf.gather(longest, place) > tf.gather(words, one)), tf.int32)
        kept = tf.where((2 * matched >= whole) & (found_before == 0))[:, 0]
        grade, name, row = (tf.gather(column, kept) for column in (grade, name, row))
        whole, matched = (tf.gather(column, kept) for column in (whole, matched))
        position = tf.gather(tf.math.unsorted_segment_max(latest, one, count), kept)
        columns = (
            tf.gather(held["worth"], name * NR_GRADES + grade), grade,
            tf.cast(matched, tf.float32) / tf.cast(whole, tf.float32),
            tf.gather(tf.math.unsorted_segment_min(fewest, one, count), kept),
            tf.cast(position, tf.float32) / tf.cast(tf.gather(lengths, row), tf.float32),
            tf.where(grade == PARTIAL, 0, tf.gather(tf.math.unsorted_segment_min(inside, one, count), kept)),
            whole, tf.gather(words, kept),
        )  # fmt: skip
        label = tf.cast(tf.gather(held["labels"], name), tf.int64)
        return _best(row * self._nr_labels + label, name, columns)


def _best(keys: tf.Tensor, names: tf.Tensor, columns: tuple[tf.Tensor, ...]) -> GraphMentions:
    """Return the best match of each label; see ``xmc_tf.label_names.mentions``."""
    precision, grade = columns[:2]
    # The grade, the precision in 21 bits, and the first of the names in 31 bits.
    steps = tf.cast(tf.round(precision * PRECISION_STEPS), tf.int64)
    merit = (tf.cast(grade, tf.int64) * (2 * PRECISION_STEPS) + steps) * 2**31 + tf.cast(_LARGEST - names, tf.int64)
    order = tf.argsort(keys, stable=True)
    distinct, of = tf.unique(tf.gather(keys, order))
    merit = tf.gather(merit, order)
    most = tf.math.unsorted_segment_max(merit, of, tf.size(distinct))
    best = tf.gather(order, tf.where(merit == tf.gather(most, of))[:, 0])
    return GraphMentions(distinct, *(tf.gather(column, best) for column in columns))


def _spread(first: tf.Tensor, last: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Expand ranges to all their numbers; return the range of each number, and the numbers."""
    ends = tf.cumsum(last - first)
    places = tf.range(tf.reduce_max(tf.concat([ends, [0]], axis=0)))
    source = tf.searchsorted(ends, places, side="right")
    return source, places - tf.gather(ends - last, source)


def _contains(ascending: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    """Return a mask of the wanted numbers that are in the ascending array."""
    padded = tf.concat([ascending, [tf.int64.max]], axis=0)
    return tf.gather(padded, tf.searchsorted(ascending, wanted)) == wanted
