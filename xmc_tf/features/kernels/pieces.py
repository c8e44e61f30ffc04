"""Compiled functions that cut long words, enclosed in "<" and ">", into overlapping pieces of equal length."""

import numpy as np

from xmc_tf.common.compiled import inner, kernel
from xmc_tf.words.kernels import word_key

LEAST = 6  # minimum number of characters of a word that is cut
BEGIN, END = np.uint8(60), np.uint8(62)  # "<" and ">", which are in no word
# Applied to keys, so that no piece has the key of a word. Both are odd.
FACTOR, OFFSET = np.int64(-4417276706812531889), np.int64(1609587929392839161)


@inner
def pieces_of_word(letters, begin, end, length, marked, starts, keys, first):
    """Write the keys of a word's pieces from ``keys[first]`` on, and return where they end. Short words have none.

    ``marked`` needs 2 entries more than the word has bytes, ``starts`` 3.
    """
    if length == 0 or end - begin < LEAST:
        return first
    marked[0] = BEGIN
    starts[0] = 0
    characters, at = 1, 1
    for place in range(begin, end):
        if letters[place] & 0xC0 != 0x80:
            starts[characters] = at
            characters += 1
        marked[at] = letters[place]
        at += 1
    if characters - 1 < LEAST:
        return first
    marked[at] = END
    starts[characters] = at
    starts[characters + 1] = at + 1
    for piece in range(characters + 2 - length):
        keys[first] = word_key(marked, starts[piece], starts[piece + length]) * FACTOR + OFFSET
        first += 1
    return first


@kernel
def cut_pieces(letters, ends, row_splits, length):
    """Return the keys of all pieces, the word of each piece, and where the pieces of each text begin."""
    room = letters.shape[0] + 2 * ends.shape[0]
    keys, words = np.empty(room, np.int64), np.empty(room, np.int64)
    marked, starts = np.empty(letters.shape[0] + 2, np.uint8), np.empty(letters.shape[0] + 3, np.int64)
    splits = np.zeros(row_splits.shape[0], np.int64)
    count, begin = 0, np.int64(0)
    for row in range(row_splits.shape[0] - 1):
        for word in range(row_splits[row], row_splits[row + 1]):
            after = pieces_of_word(letters, begin, ends[word], length, marked, starts, keys, count)
            for place in range(count, after):
                words[place] = word
            count = after
            begin = ends[word]
        splits[row + 1] = count
    return keys[:count].copy(), words[:count].copy(), splits
