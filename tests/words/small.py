"""Small dictionaries for tests: forms whose lemmas are listed, and enough of two endings that they become rules."""

from contextlib import contextmanager
from itertools import product

import pytest

from xmc_tf.words import dictionaries
from xmc_tf.words.dictionaries import load_dictionary

# Stems with and without letters beyond ASCII; each has the forms <stem>ings and <stem>öissä, of the lemma <stem>,
# and <stem>ies, of the lemma <stem>ÿ.
STEMS = [
    f"{first}{second}k" for first, second in product(["bat", "dol", "fyg", "häj", "åla"], ["ne", "ri", "so", "tö"])
]
LISTED = {
    "mice": "mouse",
    "Mäuse": "Maus",
    "mäuse": "maus",
    "taloissa": "talo",
    "vuoden": "vuosi",
    "kirjastojen": "kirjasto",
    "went": "go",
    "Häuser": "Haus",
    "lost": "lose",
    "ΟΔΥΣΣΕΥΣ": "Οδυσσεύς",
}
ENTRIES = {
    "en": [
        *LISTED.items(),
        *((stem + ending, stem) for stem in STEMS for ending in ("ings", "öissä")),
        *((stem + "ies", stem + "ÿ") for stem in STEMS),
    ],
    "sv": [("mice", "fel"), ("böcker", "bok"), ("lost", "lossa"), *((stem + "arna", stem) for stem in STEMS)],
}


@contextmanager
def small_dictionaries_in(folder):
    """Give some languages small dictionaries; yields where they are kept."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dictionaries, "cache_folder", lambda: folder)
        patch.setattr(dictionaries, "dictionary_entries", lambda code: iter(ENTRIES[code]))
        load_dictionary.cache_clear()
        yield folder / "dictionaries"
    load_dictionary.cache_clear()
