"""The characters of words (letters and digits) and their lower case, as TensorFlow's string operations define them."""

from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np

from xmc_tf.words.languages import UNSPACED_RANGES

NR_CHARACTERS = 0x110000
# Compiled into kernels. An entry of the table: the lower case of the character (21 bits), and these bits.
IN_WORD = 1 << 24  # a letter, a digit or an underscore
CASED = 1 << 25  # a letter with case, by which a final sigma is recognized
IGNORABLE = 1 << 26  # skipped when a final sigma is recognized: apostrophes, accents
SPECIAL = 1 << 27  # the lower case depends on the context, or has two characters
UNSPACED = 1 << 28  # of a script that writes without spaces: the character is a word
CODE = (1 << 21) - 1

CAPITAL_SIGMA, FINAL_SIGMA = 0x3A3, 0x3C2
DOTTED_CAPITAL_I = 0x130  # its lower case is an i and a combining dot, which is in no word

RUNS_FILE = Path(__file__).with_name("characters.npy")


@cache
def character_table(lowercase: bool, unspaced: bool = False) -> np.ndarray:
    """Return int32 [NR_CHARACTERS]: each character's lower case (itself if not ``lowercase``) and the bits above."""
    starts, delta, kind = np.load(RUNS_FILE, allow_pickle=False)
    lengths = np.diff(starts, append=np.int32(NR_CHARACTERS))
    table = np.repeat(kind << 24, lengths)
    table += np.arange(NR_CHARACTERS, dtype=np.int32)
    if lowercase:
        table += np.repeat(delta, lengths)
        table[[CAPITAL_SIGMA, DOTTED_CAPITAL_I]] |= SPECIAL
    if unspaced:
        for first, last in UNSPACED_RANGES:
            part = table[first : last + 1]
            part |= np.where(part & IN_WORD != 0, np.int32(UNSPACED), np.int32(0))
    return table


def spans_of_words(text: str, unspaced: bool = False) -> list[tuple[int, int]]:
    """Return the start and end of each word. With ``unspaced``, characters of scripts without spaces are words."""
    codes = np.frombuffer(text.encode("utf-32-le", "replace"), np.uint32)
    entries = character_table(False, unspaced)[codes]
    word = np.where(entries & UNSPACED != 0, np.arange(len(codes)) + 2, entries & IN_WORD != 0)  # 0: no word
    edges = np.flatnonzero(np.diff(word, prepend=0, append=0))
    return [(int(start), int(stop)) for start, stop in pairwise(edges) if word[start]]
