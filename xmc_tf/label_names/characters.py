"""The characters of words, in one table that both compiled code and the SavedModel's graph use.

A word is a run of letters, digits and their marks. The table maps each character to its base character in lower case
("É" to "e"), to ``SEPARATOR`` if it is not part of words, or to ``SKIPPED`` if it is dropped, like combining marks.
``characters.npy`` stores the table as runs: for each run, its first character, the distance of its characters to their
base characters, and their kind. ``python -m tools.name_characters`` writes the file, so the table does not depend on
the Unicode version of Python. A model also stores the table that it was trained with, as runs.
"""

from functools import cache
from pathlib import Path

import numpy as np

from xmc_tf.words.languages import UNSPACED_RANGES

# Compiled into kernels.
SEPARATOR, SKIPPED = 0, -1
UNSPACED = 1 << 24  # bit of characters of scripts without spaces between words
NR_CHARACTERS = 0x110000

# Kinds: not part of words, a letter, part of words besides letters, and dropped.
APART, LETTER, BESIDE, DROPPED = range(4)
RUNS_FILE = Path(__file__).with_name("characters.npy")


@cache
def character_table() -> np.ndarray:
    """Return the table, int32 [NR_CHARACTERS]: the base character, ``SEPARATOR`` or ``SKIPPED`` for each character."""
    starts, delta, _ = _runs()
    kind = _kinds()
    table = np.repeat(delta, _lengths(starts)) + np.arange(NR_CHARACTERS, dtype=np.int32)
    table[kind == APART] = SEPARATOR
    table[kind == DROPPED] = SKIPPED
    for first, last in UNSPACED_RANGES:
        part = table[first : last + 1]
        part += np.where(part > 0, np.int32(UNSPACED), np.int32(0))
    return table


def runs_of_table(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compress a character table to runs: return the start of each run, and the value of its first character.

    Within a run, all characters map to the same value, or consecutive letters map to consecutive letters.
    """
    before, after = table[:-1], table[1:]
    begins = np.where(after > 0, after != before + 1, after != before) | ((after > 0) & (before <= 0))
    starts = np.flatnonzero(np.concatenate([[True], begins])).astype(np.int32)
    return starts, table[starts]


def table_of_runs(starts: np.ndarray, values: np.ndarray) -> np.ndarray:
    lengths = _lengths(starts)
    steps = np.arange(NR_CHARACTERS, dtype=np.int32) - np.repeat(starts, lengths)
    table = np.repeat(values, lengths)
    return np.where(table > 0, table + steps, table)


def has_letter(text: str) -> bool:
    """Return whether a text contains a letter of any script. Digits and numeric characters such as "Ⅷ" do not count."""
    kind = _kinds()
    return any(kind[ord(one)] == LETTER for one in text)


@cache
def _kinds() -> np.ndarray:
    starts, _, kind = _runs()
    return np.repeat(kind.astype(np.int8), _lengths(starts))


@cache
def _runs() -> np.ndarray:
    return np.load(RUNS_FILE, allow_pickle=False)


def _lengths(starts: np.ndarray) -> np.ndarray:
    return np.diff(starts, append=np.int32(NR_CHARACTERS))
