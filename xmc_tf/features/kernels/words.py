"""Compiled functions that split texts into words, and compute n-gram keys."""

import numpy as np

from xmc_tf.common.compiled import inner, kernel
from xmc_tf.features.characters import CAPITAL_SIGMA, CASED, CODE, FINAL_SIGMA, IGNORABLE, IN_WORD, SPECIAL, UNSPACED
from xmc_tf.words.kernels import lemma_key

# 2^64 divided by the golden ratio, as a signed integer: odd, so that multiplication by it is invertible.
SPREAD = np.int64(-7046029254386353131)
_REPLACEMENT = np.int64(0xFFFD)


@inner
def next_character(data, at, stop):
    """Decode the non-ASCII character at a byte; return it (U+FFFD for invalid UTF-8) and the position after it."""
    first = np.int64(data[at])
    if first >= 0xF8 or first < 0xC2:
        return _REPLACEMENT, at + 1
    if first >= 0xF0:
        length, code, least = 4, first & 0x07, 0x10000
    elif first >= 0xE0:
        length, code, least = 3, first & 0x0F, 0x800
    else:
        length, code, least = 2, first & 0x1F, 0x80
    for step in range(1, length):
        if at + step >= stop or (data[at + step] & 0xC0) != 0x80:
            return _REPLACEMENT, at + step
        code = (code << 6) | (np.int64(data[at + step]) & 0x3F)
    if code < least or code > 0x10FFFF or (code >= 0xD800 and code < 0xE000):
        code = _REPLACEMENT
    return code, at + length


@inner
def _cased_follows(data, at, stop, table):
    """Return whether the next character that is not ignorable is a letter with case."""
    while at < stop:
        if data[at] < 0x80:
            code, at = np.int64(data[at]), at + 1
        else:
            code, at = next_character(data, at, stop)
        if not table[code] & IGNORABLE:
            return table[code] & CASED != 0
    return False


@inner
def _write(code, letters, at):
    """Write a character as UTF-8, and return the position after it."""
    if code < 0x80:
        letters[at] = code
        return at + 1
    if code < 0x800:
        letters[at] = 0xC0 | (code >> 6)
    else:
        if code < 0x10000:
            letters[at] = 0xE0 | (code >> 12)
        else:
            letters[at] = 0xF0 | (code >> 18)
            at += 1
            letters[at] = 0x80 | ((code >> 12) & 0x3F)
        at += 1
        letters[at] = 0x80 | ((code >> 6) & 0x3F)
    letters[at + 1] = 0x80 | (code & 0x3F)
    return at + 2


@inner
def split_text(data, start, stop, table, min_length, letters, ends, words, used):
    """Append the words of a text to the buffers, and return the new numbers of words and of bytes."""
    # letters needs room for 1.5 times the text's bytes and 2 more, ends for its bytes and 2 more.
    begin = used
    length = 0
    cased = False  # whether the last character that was not ignorable is a letter with case
    at = start
    while at <= stop:
        before = used
        entry = 0  # the end of the text ends a word
        if at == stop:
            at += 1
        elif data[at] < 0x80:
            entry = table[data[at]]
            at += 1
            if entry & IN_WORD:
                letters[used] = entry & 0x7F
                used += 1
        else:
            code, at = next_character(data, at, stop)
            entry = table[code]
            if entry & SPECIAL:
                if code == CAPITAL_SIGMA:
                    if cased and not _cased_follows(data, at, stop, table):
                        entry = FINAL_SIGMA | IN_WORD | CASED
                else:  # dotted I: the dot that follows it ends the word
                    letters[used] = 0x69
                    used += 1
                    length += 1
                    entry = CASED
            if entry & IN_WORD:
                used = _write(entry & CODE, letters, used)
        if not entry & IGNORABLE:
            cased = entry & CASED != 0
        if entry & IN_WORD and not entry & UNSPACED:
            length += 1
            continue
        last = before if entry & UNSPACED else used  # where the word before this character ends
        if length >= min_length:
            ends[words] = last
            words += 1
        elif length > 0:
            for place in range(last, used):
                letters[begin + place - last] = letters[place]
            used -= last - begin
        if entry & UNSPACED:
            ends[words] = used
            words += 1
        begin = used
        length = 0
    return words, used


@kernel
def split_texts(data, offsets, table, min_length, ngram_max, lexicon):
    """Return the words' letters, ends and n-gram keys [words, ngram_max], the row splits, and each lemma's source."""
    size = data.shape[0]
    letters = np.empty(size + size // 2 + 2, np.uint8)
    ends = np.empty(size + 2, np.int64)
    row_splits = np.zeros(offsets.shape[0], np.int64)
    words, used = 0, 0
    for row in range(offsets.shape[0] - 1):
        words, used = split_text(data, offsets[row], offsets[row + 1], table, min_length, letters, ends, words, used)
        row_splits[row + 1] = words
    keys = np.zeros((words, ngram_max), np.int64)
    sources = np.empty(words, np.int64)
    begin = np.int64(0)
    for i in range(words):
        keys[i, 0], sources[i] = lemma_key(letters, begin, ends[i], lexicon)
        begin = ends[i]
    for n in range(1, ngram_max):
        for i in range(words - n):
            keys[i, n] = keys[i, n - 1] * SPREAD + keys[i + n, 0]
    return letters[:used].copy(), ends[:words].copy(), keys, row_splits, sources
