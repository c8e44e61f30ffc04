"""The characters of names are the same with every Python: the shipped table, and what is decided without it."""

import unicodedata

import numpy as np

from tests.features.texts import in_all_versions
from tools.name_characters import UNICODE, entry
from xmc_tf.label_names import have_letters
from xmc_tf.label_names.characters import (
    NR_CHARACTERS,
    RUNS_FILE,
    SEPARATOR,
    SKIPPED,
    UNSPACED,
    character_table,
    has_letter,
)

# Characters that came with a version of Unicode; Python 3.11 has 14.0, 3.12 15.0 and 3.13 15.1.
OF_14 = {
    0x1DFA: SKIPPED,  # a combining dot
    0xA7D1: 0xA7D1,  # a small letter, and its capital below
    0xA7D0: 0xA7D1,
    0x10570: 0x10597,  # a capital of Vithkuqi
    0x10780: 0x10780,
    0x1E290: 0x1E290,
    0x2B738: 0x2B738 | UNSPACED,
}
AFTER_14 = [0x0CF3, 0x10EFD, 0x11F04, 0x11F50, 0x1D2C0, 0x1E030, 0x1E4D0, 0x2EBF0, 0x31350]

# All characters, or those that the version of Unicode of this Python has in common with the table's.
COMPARED = [
    code for code in range(NR_CHARACTERS) if unicodedata.unidata_version == UNICODE or in_all_versions(chr(code))
]


def test_the_table_is_what_the_tool_writes():
    starts, *entries = np.load(RUNS_FILE)
    run_of = np.searchsorted(starts, COMPARED, side="right") - 1
    np.testing.assert_array_equal(np.array(entries).T[run_of], [entry(code) for code in COMPARED])


def test_characters_of_which_the_pythons_know_different_ones():
    table = character_table()
    assert {code: int(table[code]) for code in OF_14} == OF_14
    assert [int(table[code]) for code in AFTER_14] == [SEPARATOR] * len(AFTER_14)
    assert have_letters([chr(0x1E290)])
    assert not any(have_letters([chr(code)]) for code in AFTER_14)


def test_letters_are_as_the_python_says():
    assert all(has_letter(chr(code)) == chr(code).isalpha() for code in COMPARED)
