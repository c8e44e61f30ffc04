"""Lemmas of words, as TensorFlow ops; the compiled form is ``lemma_key`` of ``xmc_tf.words.kernels``."""

import numpy as np
import tensorflow as tf

from xmc_tf.features.graph.words import keys_of
from xmc_tf.words.kernels import LEAST_STEM, LONGEST_ENDING, SHORTEST_ENDING
from xmc_tf.words.lexicon import Lexicon

_LENGTHS = tuple(range(LONGEST_ENDING, SHORTEST_ENDING - 1, -1))
_PADDING = "\x00" * LONGEST_ENDING


class Lemmas(tf.Module):
    """The keys of the lemmas of words.

    Args:
        lexicon: the lemmas of words.
    """

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
                # Few and short: constants, because a server cannot restore variables of strings.
                self._added = [letters[a:b] for a, b in zip(begins, rule.added_ends.tolist(), strict=True)]
                self.endings = tf.Variable(np.asarray(rule.endings), trainable=False, name="endings")
                self.cuts = tf.Variable(np.asarray(rule.cuts), trainable=False, name="cuts")

    def __call__(self, words: tf.Tensor) -> tf.Tensor:
        """Return the key of the lemma of each word."""
        keys = keys_of(words)
        by_ending = keys_of(self._by_ending(words)) if self._has_endings else keys
        if not self._has_forms:
            return by_ending
        place, known = _found(self.forms.value(), keys)
        return tf.where(known, tf.gather(self.lemma_keys, tf.gather(self.lemma_of, place)), by_ending)

    def _by_ending(self, words: tf.Tensor) -> tf.Tensor:
        """Return the lemma that the longest known ending of each word tells; without one, the word."""
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
    """Return the place of each key among ascending ones, and whether it is there."""
    flat = tf.reshape(keys, [-1])
    place = tf.minimum(tf.searchsorted(known, flat), tf.size(known) - 1)
    found = tf.gather(known, place) == flat
    return tf.reshape(place, tf.shape(keys)), tf.reshape(found, tf.shape(keys))
