"""Compiled functions that split texts into words and find names in them.

A word has two hashes: one of its prefix, by which names are found, and one of the whole word. In languages that inflect
at the end, words with the same root mostly share their first letters, so two words match if their first ``PREFIX``
characters are equal; ``match_precision`` learns how reliable such a match is. Word forms in the dictionary are replaced
by their lemma. In languages with compounds, pieces of long words count as additional words. In scripts without spaces
between words, each pair of neighbouring characters counts as a word.
"""

import numpy as np

from xmc_tf.common.compiled import inner, kernel
from xmc_tf.common.ordering import first_at_least, sort_ascending
from xmc_tf.label_names.characters import UNSPACED

PREFIX = 6
LONGEST = 64  # characters of a word that count
LONG = 8  # characters from which a word has pieces
SPREAD = np.int64(-7046029254386353131)  # odd: 2^64 divided by the golden ratio
FULL = np.int64(4768777513237032717)  # another odd multiplier, for the whole word
PARTIAL, INFLECTED, EXACT = 0, 1, 2  # grades of matches
NR_GRADES = 3


@inner
def decode(data, start, stop, table, out):
    """Decode UTF-8 text, map its characters, and drop skipped ones; return the number of characters written.

    Bytes that are not UTF-8 become separators.
    """
    count = 0
    at = start
    while at < stop:
        first = np.int64(data[at])
        length, code, least = 1, first, 0
        if first >= 0xF0 and first < 0xF8:
            length, code, least = 4, first & 0x07, 0x10000
        elif first >= 0xE0 and first < 0xF0:
            length, code, least = 3, first & 0x0F, 0x800
        elif first >= 0xC0 and first < 0xE0:
            length, code, least = 2, first & 0x1F, 0x80
        elif first >= 0x80:
            code = np.int64(-1)
        for step in range(1, length):
            if at + step >= stop or (np.int64(data[at + step]) & 0xC0) != 0x80:
                length, code = step, np.int64(-1)
                break
            code = (code << 6) | (np.int64(data[at + step]) & 0x3F)
        at += length
        mapped = 0
        if code >= least and code < table.shape[0]:
            mapped = table[code]
        if mapped >= 0:
            out[count] = mapped
            count += 1
    return count


@inner
def _hash(characters, first, last, factor):
    value = np.int64(0)
    for place in range(first, last):
        value = (value + characters[place]) * factor
    return value


@inner
def hash_words(characters, count, keys, exact, starts, reading):
    """Write both hashes and the start of each word and piece. Return their number, which is at most 2 × characters."""
    words = 0
    at = 0
    while at < count:
        if characters[at] == 0:
            at += 1
            continue
        end = at + 1
        if characters[at] & UNSPACED:
            pair = end < count and characters[end] & UNSPACED
            lone = at == 0 or not characters[at - 1] & UNSPACED
            if pair:
                end += 1
            elif not lone:
                at += 1
                continue
        else:
            while end < count and characters[end] != 0 and not characters[end] & UNSPACED:
                end += 1
        key = _hash(characters, at, min(end, at + PREFIX), SPREAD)
        whole = _hash(characters, at, min(end, at + LONGEST), FULL)
        place = first_at_least(reading.forms, whole, 0, len(reading.forms))
        if place < reading.forms.shape[0] and reading.forms[place] == whole:
            key = reading.lemma_keys[reading.lemma_of[place]]
            whole = reading.lemma_exact[reading.lemma_of[place]]
        keys[words] = key
        exact[words] = whole
        starts[words] = at
        words += 1
        if reading.piece > 0 and end - at >= LONG and not characters[at] & UNSPACED:
            for first in range(at, end - reading.piece + 1):
                keys[words] = _hash(characters, first, first + reading.piece, SPREAD)
                exact[words] = _hash(characters, first, first + reading.piece, FULL)
                starts[words] = first
                words += 1
        at = at + 1 if characters[at] & UNSPACED else end
    return words


@kernel
def hash_texts(data, offsets, reading):
    """Return both hashes of all words and pieces, and the number of words and pieces in each text."""
    size = data.shape[0]
    keys, exact = np.empty(2 * size, np.int64), np.empty(2 * size, np.int64)
    counts = np.empty(offsets.shape[0] - 1, np.int64)
    characters, starts = np.empty(size, np.int32), np.empty(2 * size, np.int32)
    total = 0
    for i in range(counts.shape[0]):
        count = decode(data, offsets[i], offsets[i + 1], reading.characters, characters)
        counts[i] = hash_words(characters, count, keys[total:], exact[total:], starts, reading)
        total += counts[i]
    return keys[:total].copy(), exact[:total].copy(), counts


@inner
def _known(hashes, count, words, out, spare):
    """Write the indices of the hashes found in ``words`` to ``out``, distinct and ascending; return their number."""
    found = 0
    for i in range(count):
        place = first_at_least(words, hashes[i], 0, len(words))
        if place < words.shape[0] and words[place] == hashes[i]:
            out[found] = place
            found += 1
    sort_ascending(out[:found], spare)
    distinct = 0
    for i in range(found):
        if i == 0 or out[i] != out[distinct - 1]:
            out[distinct] = out[i]
            distinct += 1
    return distinct


@kernel
def count_words(data, offsets, reading, words):
    """Return the number of texts that contain each word."""
    longest = 1
    for i in range(offsets.shape[0] - 1):
        longest = max(longest, offsets[i + 1] - offsets[i])
    characters = np.empty(longest, np.int32)
    room = 2 * longest
    keys, exact = np.empty(room, np.int64), np.empty(room, np.int64)
    here, spare, starts = np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room, np.int32)
    out = np.zeros(words.shape[0], np.int64)
    for i in range(offsets.shape[0] - 1):
        count = decode(data, offsets[i], offsets[i + 1], reading.characters, characters)
        count = hash_words(characters, count, keys, exact, starts, reading)
        for j in range(_known(keys, count, words, here, spare)):
            out[here[j]] += 1
    return out


@kernel
def match_names(
    data, offsets, reading, words, exact_words, labels, splits, name_words, name_exact, weights, lists, listed, places
):  # fmt: skip
    """Return the number of matches in each text, and columns (with room for more): name, grade, coverage, count,
    position, inside. One array of float64 is compiled faster than six of several types.
    """
    n = offsets.shape[0] - 1
    longest = 1
    for i in range(n):
        longest = max(longest, offsets[i + 1] - offsets[i])
    # Positions count characters of words, because decoders differ in the number of separators for invalid bytes.
    characters, before = np.empty(longest, np.int32), np.empty(longest, np.int32)
    room = 2 * longest
    keys, exact = np.empty(room, np.int64), np.empty(room, np.int64)
    here, spare, starts = np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room, np.int32)
    # For each word: the last text that contains it, counted from 1; and in this text its count, its first position,
    # and the number of words of the longest name that contains it and occurs as a whole.
    seen, seen_exact = np.zeros(words.shape[0], np.int32), np.zeros(exact_words.shape[0], np.int32)
    often, first_at, longest_name = np.zeros_like(seen), np.zeros_like(seen), np.zeros_like(seen)
    counts = np.zeros(n, np.int64)
    found = np.empty((6, 1024), np.float64)
    total = 0
    for i in range(n):
        begin = total
        length = decode(data, offsets[i], offsets[i + 1], reading.characters, characters)
        count = hash_words(characters, length, keys, exact, starts, reading)
        letters = 0
        for j in range(length):
            before[j] = letters
            letters += characters[j] != 0
        for j in range(_known(exact, count, exact_words, here, spare)):
            seen_exact[here[j]] = i + 1
        for j in range(count):
            place = first_at_least(words, keys[j], 0, len(words))
            if place < words.shape[0] and words[place] == keys[j]:
                if seen[place] != i + 1:
                    seen[place] = i + 1
                    often[place] = 0
                    first_at[place] = before[starts[j]]
                    longest_name[place] = 0
                often[place] += 1
        nr_here = _known(keys, count, words, here, spare)
        for j in range(nr_here):
            for at in range(lists[here[j]], lists[here[j] + 1]):
                name = listed[at]
                first, last = splits[name], splits[name + 1]
                own = first + places[at]
                matched, whole, same, found_before = 0, 0, True, False
                fewest, latest = room, 0
                for place in range(first, last):
                    whole += weights[place]
                    word = name_words[place]
                    if seen[word] == i + 1:
                        if place < own:
                            found_before = True  # the name has been found by that word
                            break
                        matched += weights[place]
                        fewest = min(fewest, often[word])
                        latest = max(latest, first_at[word])
                        if seen_exact[name_exact[place]] != i + 1:
                            same = False
                if found_before or 2 * matched < whole:
                    continue
                if total == found.shape[1]:
                    wider = np.empty((6, 2 * total), np.float64)
                    for column in range(6):
                        for match in range(total):
                            wider[column, match] = found[column, match]
                    found = wider
                found[0, total] = name
                found[1, total] = PARTIAL if matched < whole else EXACT if same else INFLECTED
                found[2, total] = np.float32(matched) / np.float32(whole)
                found[3, total] = fewest
                found[4, total] = np.float32(latest) / np.float32(letters)
                if matched == whole:
                    for place in range(first, last):
                        longest_name[name_words[place]] = max(longest_name[name_words[place]], last - first)
                total += 1
        for match in range(begin, total):
            name = np.int64(found[0, match])
            first, last = splits[name], splits[name + 1]
            found[5, match] = found[1, match] != PARTIAL
            for place in range(first, last):
                if longest_name[name_words[place]] <= last - first:
                    found[5, match] = 0
        counts[i] = total - begin
    return counts, found
