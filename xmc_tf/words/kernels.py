"""Compiled functions that map words to keys, and words to the keys of their lemmas."""

from typing import NamedTuple

import numpy as np

from xmc_tf.common.compiled import inner, kernel
from xmc_tf.common.ordering import first_at_least
from xmc_tf.words.fingerprint import fingerprint

BUCKETS = np.uint64(2**63 - 1)
# Bytes of an ending, and bytes of a word before it. Compiled into kernels.
SHORTEST_ENDING, LONGEST_ENDING, LEAST_STEM = 2, 14, 2
OWN = -1  # instead of the number of a lemma: the word itself


class KeyTable(NamedTuple):
    """Ascending keys. For each value of their first bits, ``buckets`` has the position of the first such key."""

    keys: np.ndarray  # int64, ascending
    buckets: np.ndarray  # int32
    shift: int  # the number of the other bits


class LexiconArrays(NamedTuple):
    """The arrays of a `Lexicon` and its `Endings`, for kernels."""

    forms: KeyTable
    lemma_of: np.ndarray
    lemma_keys: np.ndarray
    endings: np.ndarray
    cuts: np.ndarray
    added: np.ndarray
    added_ends: np.ndarray


def key_table(keys: np.ndarray) -> KeyTable:
    """Return the table of ascending keys. Keys are hashes, so very few have the same first bits."""
    bits = max(1, len(keys).bit_length())
    shift = 64 - bits
    sizes = np.bincount((keys >> shift) + (1 << (bits - 1)), minlength=1 << bits)
    return KeyTable(keys, np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32), shift)


@inner
def find_key(key, table):
    """Return the position of a key in a table, or -1 if it is not there."""
    prefix = (key >> table.shift) + (np.int64(1) << (63 - table.shift))
    first, last = np.int64(table.buckets[prefix]), np.int64(table.buckets[prefix + 1])
    place = first_at_least(table.keys, key, first, last)
    if place < table.keys.shape[0] and table.keys[place] == key:
        return place
    return np.int64(-1)


@inner
def word_key(letters, begin, end):
    return np.int64(fingerprint(letters, begin, end - begin) % BUCKETS)


@kernel
def keys_of_words(letters, ends):
    """Return the key of each word; ``letters`` holds the words one after the other."""
    keys = np.empty(ends.shape[0], np.int64)
    begin = np.int64(0)
    for i in range(ends.shape[0]):
        keys[i] = word_key(letters, begin, ends[i])
        begin = ends[i]
    return keys


@inner
def lemma_key(letters, begin, end, lexicon):
    """Return the key of a word's lemma, and its source.

    The source is the number of the lemma, ``OWN`` for the word itself, or ``OWN - 1 - n`` if ending n produced it.
    """
    key = word_key(letters, begin, end)
    if lexicon.lemma_of.shape[0] == 0 and lexicon.endings.shape[0] == 0:
        return key, np.int64(OWN)
    place = find_key(key, lexicon.forms)
    if place >= 0:
        lemma = np.int64(lexicon.lemma_of[place])
        return lexicon.lemma_keys[lemma], lemma
    if lexicon.endings.shape[0] > 0:
        for size in range(min(LONGEST_ENDING, end - begin - LEAST_STEM), SHORTEST_ENDING - 1, -1):
            ending = word_key(letters, end - size, end)
            place = first_at_least(lexicon.endings, ending, 0, lexicon.endings.shape[0])
            if place < lexicon.endings.shape[0] and lexicon.endings[place] == ending:
                stem = max(end - begin - lexicon.cuts[place], 0)
                first = lexicon.added_ends[place - 1] if place > 0 else np.int64(0)
                added = lexicon.added_ends[place] - first
                lemma_letters = np.empty(stem + added, np.uint8)
                for i in range(stem):
                    lemma_letters[i] = letters[begin + i]
                for i in range(added):
                    lemma_letters[stem + i] = lexicon.added[first + i]
                return word_key(lemma_letters, 0, stem + added), np.int64(OWN - 1 - place)
    return key, np.int64(OWN)
