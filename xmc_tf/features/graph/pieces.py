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
    size = tf.strings.length(words, unit="UTF8_CHAR")
    counts = tf.maximum(tf.where(size >= LEAST, size + (3 - length), 0), 0)
    ends = tf.cumsum(counts)
    total = tf.reduce_sum(counts)
    places = tf.range(total)
    word = tf.searchsorted(ends, places, side="right")
    marked = tf.strings.join([chr(BEGIN), words, chr(END)])
    first = places - tf.gather(ends - counts, word)
    pieces = tf.strings.substr(tf.gather(marked, word), first, tf.fill([total], length), unit="UTF8_CHAR")
    keys = keys_of(pieces) * tf.constant(FACTOR, tf.int64) + tf.constant(OFFSET, tf.int64)
    before = tf.cast(tf.concat([[0], ends], axis=0), tf.int64)
    return keys, tf.gather(before, row_splits)
