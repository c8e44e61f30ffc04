"""The characters of words: one table, which compiled code and the SavedModel's graph both read.

A word is a run of letters, digits and their marks. The table maps each character to its base character in lower case
("É" to "e"), to ``SEPARATOR`` if it is in no word, or to ``SKIPPED`` if it is dropped, as combining marks are. The
Unicode version is that of the Python that trained the model; the table is stored in the model, so that it is the same
everywhere.
"""

import sys
import unicodedata
from functools import cache

import numpy as np

SEPARATOR, SKIPPED = 0, -1
UNSPACED = 1 << 24  # a bit of characters of scripts that write without spaces between words
NR_CHARACTERS = sys.maxunicode + 1

# Scripts whose words are not separated by spaces: a pair of characters counts as a word.
_UNSPACED_RANGES = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x3005, 0x30FF),  # iteration marks, Hiragana, Katakana
    (0x31F0, 0x31FF),  # Katakana extensions
    (0x3400, 0x9FFF),  # Han
    (0xF900, 0xFAFF),  # Han, compatibility
    (0x20000, 0x3FFFF),  # Han, extensions
)


@cache
def character_table() -> np.ndarray:
    """Return int32 [NR_CHARACTERS]: what each character becomes."""
    table = np.zeros(NR_CHARACTERS, np.int32)
    for code in range(NR_CHARACTERS):
        category = unicodedata.category(chr(code))
        if category[0] in "LN":
            table[code] = _base(code)
        elif category in ("Mn", "Me") or code in (0xAD, 0x200C, 0x200D):  # soft hyphen, zero-width joiners
            table[code] = SKIPPED
        elif category == "Mc":  # vowel signs of Indic scripts are a part of the word
            table[code] = code
    for first, last in _UNSPACED_RANGES:
        part = table[first : last + 1]
        part[part > 0] |= UNSPACED
    return table


def _base(code: int) -> int:
    """Return a letter's or digit's base character in lower case, if it has a single one; else the first of several."""
    folded = unicodedata.normalize("NFKD", chr(code).casefold())
    bases = [one for one in folded if unicodedata.category(one)[0] in "LN"]
    if not bases or 0xAC00 <= code <= 0xD7A3:  # a Hangul syllable is a character, not a row of letters
        return code
    return ord(bases[0])
