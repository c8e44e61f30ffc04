"""TensorFlow ops that split texts into words, lemmas and pieces, and compute n-gram keys."""

import numpy as np
import tensorflow as tf

from xmc_tf.features.kernels.pieces import BEGIN, END, FACTOR, LEAST, OFFSET
from xmc_tf.words.kernels import LEAST_STEM, LONGEST_ENDING, SHORTEST_ENDING
from xmc_tf.words.languages import UNSPACED_RANGES
from xmc_tf.words.lexicon import Lexicon

_LENGTHS = tuple(range(LONGEST_ENDING, SHORTEST_ENDING - 1, -1))
_PADDING = "\x00" * LONGEST_ENDING


class Lemmas(tf.Module):
    """Maps words to the keys of their lemmas, in a TensorFlow graph."""

    def __init__(self, lexicon: Lexicon) -> None:
        super().__init__(name="lexicon")
        self._has_forms, self._has_endings = len(lexicon.forms) > 0, len(lexicon.rule.endings) > 0
        with tf.device("CPU:0"):
            if self._has_forms:
                self.forms = tf.Variable(np.asarray(lexicon.forms), trainable=False, name="forms")
                self.lemma_of = tf.Variable(np.asarray(lexicon.lemma_of), trainable=False, name="lemma_of")
                self.lemma_keys = tf.Variable(np.asarray(lexicon.lemma_keys), trainable=False, name="lemma_keys")
            if self._has_endings:
                rule = lexicon.rule
                letters = np.asarray(rule.added).tobytes()
                begins = [0, *rule.added_ends[:-1].tolist()]
                # Constants, because a server cannot restore string variables; they are few and short.
                self._added = [letters[a:b] for a, b in zip(begins, rule.added_ends.tolist(), strict=True)]
                self.endings = tf.Variable(np.asarray(rule.endings), trainable=False, name="endings")
                self.cuts = tf.Variable(np.asarray(rule.cuts), trainable=False, name="cuts")

    def __call__(self, words: tf.Tensor) -> tf.Tensor:
        keys = keys_of(words)
        by_ending = keys_of(self._by_ending(words)) if self._has_endings else keys
        if not self._has_forms:
            return by_ending
        place, known = _found(self.forms.value(), keys)
        return tf.where(known, tf.gather(self.lemma_keys, tf.gather(self.lemma_of, place)), by_ending)

    def _by_ending(self, words: tf.Tensor) -> tf.Tensor:
        """Return the lemma of each word, derived from its longest known ending; the word itself if it has none."""
        size = tf.strings.length(words)
        lengths = tf.constant(_LENGTHS, tf.int32)
        padded = tf.repeat(tf.strings.join([_PADDING, words])[:, tf.newaxis], len(_LENGTHS), axis=1)
        shape = tf.shape(padded)
        last = tf.broadcast_to(lengths, shape)
        place, known = _found(self.endings.value(), keys_of(tf.strings.substr(padded, -last, last)))
        known &= last <= (size - LEAST_STEM)[:, tf.newaxis]
        any_known = tf.reduce_any(known, axis=1)
        longest = tf.argmax(known, axis=1, output_type=tf.int32)
        rule = tf.gather(place, longest, axis=1, batch_dims=1)
        cut = tf.where(any_known, tf.gather(self.cuts, rule), 0)
        added = tf.where(any_known, tf.gather(tf.constant(self._added), rule), "")
        return tf.strings.join([tf.strings.substr(words, tf.zeros_like(size), tf.maximum(size - cut, 0)), added])


def _found(known: tf.Tensor, keys: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the position of each key among the ascending ``known`` keys, and whether it is one of them."""
    flat = tf.reshape(keys, [-1])
    place = tf.minimum(tf.searchsorted(known, flat), tf.size(known) - 1)
    found = tf.gather(known, place) == flat
    return tf.reshape(place, tf.shape(keys)), tf.reshape(found, tf.shape(keys))


def piece_keys(words: tf.Tensor, row_splits: tf.Tensor, length: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the keys of the pieces of long words, and where each text begins and ends in them (int64 [n + 1])."""
    long = tf.strings.length(words, unit="UTF8_CHAR") >= LEAST
    marked = tf.strings.join([chr(BEGIN), tf.boolean_mask(words, long), chr(END)])
    # Characters, because substrings at all positions would take memory quadratic in the length of a word.
    characters = tf.raw_ops.UnicodeDecode(input=marked, input_encoding="UTF-8", Tsplits=tf.int64)
    pieces, ends = tf.raw_ops.StringNGrams(
        data=tf.strings.unicode_encode(characters.char_values[:, tf.newaxis], "UTF-8"), ngram_widths=[length],
        data_splits=characters.row_splits, separator="", left_pad="", right_pad="", pad_width=0,
        preserve_short_sequences=False,
    )  # fmt: skip
    keys = keys_of(pieces) * tf.constant(FACTOR, tf.int64) + tf.constant(OFFSET, tf.int64)
    before = tf.cumsum(tf.cast(long, tf.int64))
    return keys, tf.gather(ends, tf.gather(tf.concat([[0], before], axis=0), row_splits))


_NOT_IN_WORDS = r"[^\pL\pN_]+"
_UNSPACED = "[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in UNSPACED_RANGES) + "]"
# The maximum number of buckets: the hash becomes a fingerprint of 63 bits. Among a hundred million n-grams, two share a
# key with a probability of about one in two thousand.
_BUCKETS = 2**63 - 1
# 2^64 divided by the golden ratio, as a signed integer: odd, so that multiplication by it is invertible.
_SPREAD = -7046029254386353131
# Capital letters that ICU lowercases differently in a Turkish, Azeri or Lithuanian locale. A model trained in one
# locale must give the same features on a server in another.
_CAPITALS_OF_LOCALES = {"İ": "i̇", "Ì": "ì", "Í": "í", "Ĩ": "ĩ", "Į": "į"}


def split_words(
    text: tf.Tensor, lowercase: bool, min_length: int, unspaced: bool = False
) -> tuple[tf.Tensor, tf.Tensor]:
    """Split texts into words; return them and the boundaries of texts, int64 [n + 1]. Invalid bytes separate words."""
    # The Unicode ops end a string at its first NUL.
    text = tf.strings.regex_replace(text, r"\x00", " ")
    # Both ops replace bytes that are not UTF-8 by U+FFFD, which is in no word.
    text = lowered(text) if lowercase else tf.strings.unicode_transcode(text, "UTF-8", "UTF-8")
    if unspaced:
        text = tf.strings.regex_replace(text, _UNSPACED, r" \0 ")
    # Not `tensorflow_text.regex_split`: this can be loaded where only TensorFlow is installed. And not by white space,
    # because some locales count bytes of letters as such; at the ends of a text are words without letters.
    split = tf.strings.split(tf.strings.regex_replace(text, _NOT_IN_WORDS, " "), " ")
    words, row_splits = split.values, split.row_splits
    long = tf.strings.length(words, unit="UTF8_CHAR") >= min_length
    if unspaced:
        long |= tf.strings.regex_full_match(words, _UNSPACED)
    before = tf.concat([[0], tf.cumsum(tf.cast(long, tf.int64))], axis=0)
    return tf.boolean_mask(words, long), tf.gather(before, row_splits)


def lowered(text: tf.Tensor) -> tf.Tensor:
    """Convert letters to lower case, independently of the locale."""
    text = tf.strings.lower(text)  # A to Z first: in a Turkish locale, the lower case of I has no dot
    for capital, small in _CAPITALS_OF_LOCALES.items():
        text = tf.strings.regex_replace(text, capital, small)
    return tf.strings.lower(text, encoding="utf-8")


def keys_of(words: tf.Tensor) -> tf.Tensor:
    return tf.strings.to_hash_bucket_fast(words, _BUCKETS)


def ngram_keys(words: tf.Tensor, row_splits: tf.Tensor, ngram_max: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the keys [words, ngram_max] of the n-grams that begin at each word, and whether each ends in its text."""
    keys = [words]
    for n in range(1, ngram_max):
        keys.append(keys[-1] * tf.constant(_SPREAD, tf.int64) + tf.roll(words, -n, axis=0))
    # A search, because `tf.repeat` would build a matrix as wide as the longest text.
    places = tf.range(tf.size(words, out_type=tf.int64))
    ends = row_splits[1:]
    left = tf.gather(ends, tf.searchsorted(ends, places, side="right")) - places
    return tf.stack(keys, axis=1), left[:, tf.newaxis] > tf.range(ngram_max, dtype=tf.int64)
