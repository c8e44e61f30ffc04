"""Pieces of long words, as TensorFlow ops; the compiled form is in ``xmc_tf.features.kernels.pieces``."""

import tensorflow as tf

from xmc_tf.features.graph.words import keys_of
from xmc_tf.features.kernels.pieces import BEGIN, END, FACTOR, LEAST, OFFSET


def piece_keys(words: tf.Tensor, row_splits: tf.Tensor, length: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the keys of the pieces of words.

    Args:
        words: the words of all texts.
        row_splits: where each text's words begin.
        length: number of characters of a piece.

    Returns:
        int64: the keys; and int64 [n + 1]: where each text's pieces begin.
    """
    long = tf.strings.length(words, unit="UTF8_CHAR") >= LEAST
    marked = tf.strings.join([chr(BEGIN), tf.boolean_mask(words, long), chr(END)])
    # Characters, and no part of a word for each of its places: that would take memory for the square of its length.
    characters = tf.raw_ops.UnicodeDecode(input=marked, input_encoding="UTF-8", Tsplits=tf.int64)
    pieces, ends = tf.raw_ops.StringNGrams(
        data=tf.strings.unicode_encode(characters.char_values[:, tf.newaxis], "UTF-8"),
        data_splits=characters.row_splits,
        separator="",
        ngram_widths=[length],
        left_pad="",
        right_pad="",
        pad_width=0,
        preserve_short_sequences=False,
    )
    keys = keys_of(pieces) * tf.constant(FACTOR, tf.int64) + tf.constant(OFFSET, tf.int64)
    before = tf.cumsum(tf.cast(long, tf.int64))
    return keys, tf.gather(ends, tf.gather(tf.concat([[0], before], axis=0), row_splits))
