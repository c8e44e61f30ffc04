"""The rule of endings, against plain Python."""

import string

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.words.keys import key_of, lemmas_of
from tests.words.reference import lemma_by_rules, listed_lemmas, rules_of
from xmc_tf.words import dictionaries as endings
from xmc_tf.words.dictionaries import learn_endings
from xmc_tf.words.kernels import OWN
from xmc_tf.words.lexicon import Lexicon

STEM = st.text(string.ascii_lowercase[:6] + "äß語", min_size=1, max_size=8)
ENDING = st.sampled_from(["s", "ings", "ung", "öissä", "ja", "語語", "ies"])
ADDED = st.sampled_from(["", "y", "en", "ä", "語"])


@st.composite
def languages(draw):
    """Draw forms with a few endings, whose lemmas mostly follow from them."""
    change = {ending: draw(ADDED) for ending in draw(st.lists(ENDING, min_size=1, max_size=3))}
    found = {}
    for number in range(draw(st.integers(15, 60))):
        stem = draw(STEM) + string.ascii_lowercase[number % 26]
        for ending, added in change.items():
            found[stem + ending] = stem + (added if draw(st.integers(0, 30)) else "x")
    return found


def learned(lemma_of_form):
    """Return the function from words to lemmas that a learned rule is."""
    rule = learn_endings(lemma_of_form)
    none = np.zeros(0, np.int64)
    lexicon = Lexicon(none, none.astype(np.int32), none, rule)

    def lemma(word):
        (key,), (source,) = lemmas_of([word], lexicon)
        assert source <= OWN
        found = lexicon.lemma(word.encode(), int(source))
        assert key == key_of(found)
        return found.decode()

    return lemma


@settings(max_examples=60, deadline=None)
@given(languages(), st.lists(st.tuples(STEM, ENDING).map("".join) | st.text(max_size=12), max_size=20))
def test_any_language_and_any_word(lemma_of_form, words):
    rules, lemma = rules_of(lemma_of_form), learned(lemma_of_form)
    for word in [*words, *lemma_of_form]:
        word = word.encode("utf-8", "replace").decode()
        assert lemma(word) == lemma_by_rules(word, rules)


def test_the_rules_of_a_small_language():
    lemma = learned(listed_lemmas("en"))
    assert [lemma(word) for word in ["libroings", "pöytöissä", "sings", "xyings", "ings", "other"]] == [
        "libro", "pöyt", "sings", "xy", "ings", "other",
    ]  # fmt: skip


def test_an_ending_that_is_often_wrong_is_no_rule():
    forms = {f"{a}{b}{c}ties": f"{a}{b}{c}ty" for a in "abc" for b in "def" for c in "gkl"}
    assert learned(forms)("cities") == "city"
    forms |= {form: form for form in list(forms)[:4]}
    assert learned(forms)("cities") == "cities"


def test_of_a_large_dictionary_some_forms_are_counted(monkeypatch):
    monkeypatch.setattr(endings, "SAMPLE", 50)
    forms = {f"{a}{b}{c}ings": f"{a}{b}{c}" for a in "abcdef" for b in "defghi" for c in "gkl"}
    assert learned(forms)("things") == "th"
