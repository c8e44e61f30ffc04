"""The keys of words and of their lemmas, by the compiled functions."""

import numba
import numpy as np

from xmc_tf.words.dictionaries import Strings
from xmc_tf.words.kernels import lemma_key


@numba.njit
def _lemma_keys(letters, ends, lexicon):
    keys, sources = np.empty(len(ends), np.int64), np.empty(len(ends), np.int64)
    begin = np.int64(0)
    for i in range(len(ends)):
        keys[i], sources[i] = lemma_key(letters, begin, ends[i], lexicon)
        begin = ends[i]
    return keys, sources


def lemmas_of(words, lexicon):
    """Return the keys of the lemmas of words, and where they are from."""
    strings = Strings.of([word.encode() for word in words])
    return _lemma_keys(strings.letters.copy(), strings.ends, lexicon.arrays)


def key_of(word):
    """Return the key of one word, given as bytes."""
    return int(Strings.of([word]).keys()[0])
