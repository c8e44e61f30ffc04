"""From text to words to the keys of n-grams, as TensorFlow ops that training and serving share.

A word is a run of letters, digits and underscores of any script. Its key is a 64-bit fingerprint, and an
n-gram's key is made of its words' keys by arithmetic, so that no string is ever built for an n-gram.
"""

import tensorflow as tf
from tensorflow_text.python.ops.regex_split_ops import gen_regex_split_ops

_NOT_IN_WORDS = r"([^\pL\pN_]+)"
# The largest number of buckets there is: the hash becomes a fingerprint of 63 bits. That any two of a hundred
# million n-grams share a key has a probability of about one in two thousand.
_BUCKETS = 2**63 - 1
# 2^64 divided by the golden ratio, as a signed integer: odd, so that multiplying by it loses nothing.
_SPREAD = -7046029254386353131
# Capital letters that ICU makes small in another way when the process's locale is Turkish, Azeri or
# Lithuanian. A model trained in Ankara is to give the same features on a server that knows no locale.
_CAPITALS_OF_LOCALES = {"İ": "i̇", "Ì": "ì", "Í": "í", "Ĩ": "ĩ", "Į": "į"}


def split_words(text: tf.Tensor, lowercase: bool, min_length: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Split texts into words.

    Args:
        text: strings [n], UTF-8; bytes that are none stand between words.
        lowercase: whether all letters are made small first.
        min_length: characters that a word must have.

    Returns:
        The words of all texts one after the other, and int64 [n + 1]: where each text's words begin.
    """
    # The ops for unicode take a string to end at its first NUL.
    text = tf.strings.regex_replace(text, r"\x00", " ")
    # Either replaces bytes that are not UTF-8 by U+FFFD, which is in no word.
    text = _lower(text) if lowercase else tf.strings.unicode_transcode(text, "UTF-8", "UTF-8")
    # The op behind `tensorflow_text.regex_split`, which would check the op's own output with further ops and
    # branches: a quarter of a second when the graph is built.
    words, _, _, row_splits = gen_regex_split_ops.regex_split_with_offsets(text, _NOT_IN_WORDS, "()")
    if min_length == 1:
        return words, row_splits
    long = tf.strings.length(words, unit="UTF8_CHAR") >= min_length
    before = tf.concat([[0], tf.cumsum(tf.cast(long, tf.int64))], axis=0)
    return tf.boolean_mask(words, long), tf.gather(before, row_splits)


def _lower(text: tf.Tensor) -> tf.Tensor:
    """Make all letters small, in every locale the same."""
    text = tf.strings.lower(text)  # A to Z, whatever the locale: in Turkish unicode's small I has no dot
    for capital, small in _CAPITALS_OF_LOCALES.items():
        text = tf.strings.regex_replace(text, capital, small)
    return tf.strings.lower(text, encoding="utf-8")


def ngram_keys(words: tf.Tensor, row_splits: tf.Tensor, ngram_max: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Gives each run of up to ``ngram_max`` words its key.

    Args:
        words: the words of all texts one after the other.
        row_splits: where each text's words begin.
        ngram_max: the longest run.

    Returns:
        int64 [words, ngram_max]: the keys of the runs of 1, 2, ... words that begin at a word; and of the
        same shape whether the run ends before its text does. Where it does not, the key means nothing.
    """
    words = tf.strings.to_hash_bucket_fast(words, _BUCKETS)
    keys = [words]
    for n in range(1, ngram_max):
        keys.append(keys[-1] * tf.constant(_SPREAD, tf.int64) + tf.roll(words, -n, axis=0))
    # A search, because `tf.repeat` would make a matrix as wide as the longest text.
    places = tf.range(tf.size(words, out_type=tf.int64))
    ends = row_splits[1:]
    left = tf.gather(ends, tf.searchsorted(ends, places, side="right")) - places
    return tf.stack(keys, axis=1), left[:, tf.newaxis] > tf.range(ngram_max, dtype=tf.int64)
