"""The lexicon of a model: the lemmas of its languages, and the part of them that it needs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.words import reference
from tests.words.keys import key_of, lemmas_of
from tests.words.small import LISTED, STEMS
from xmc_tf.words.kernels import OWN
from xmc_tf.words.lexicon import FIELDS, NO_LEXICON, Lexicon

WORDS = sorted({word.lower() for word in [*LISTED, *LISTED.values(), "böcker", "bok", "fel", "lossa"]}) + STEMS
some_word = (
    st.sampled_from(WORDS)
    | st.tuples(
        st.sampled_from(STEMS) | st.text("abäö語", max_size=6),
        st.sampled_from(["ings", "öissä", "arna", "ies", "ÿ", ""]),
    ).map("".join)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
)


@pytest.fixture(scope="module")
def lexicon(small_dictionaries):
    return Lexicon.of(["en"])


@pytest.fixture(scope="module")
def both(small_dictionaries):
    return Lexicon.of(["en", "sv"])


def lemma_texts(words, lexicon):
    """Return the lemmas of words as text, whose keys are the keys of the lemmas."""
    keys, sources = lemmas_of(words, lexicon)
    found = [lexicon.lemma(word.encode(), int(source)) for word, source in zip(words, sources, strict=True)]
    assert keys.tolist() == [key_of(one) for one in found]
    return [one.decode() for one in found]


@settings(max_examples=60, deadline=None)
@given(st.lists(some_word, max_size=8))
def test_any_word_of_one_language_and_of_several(lexicon, both, words):
    assert lemma_texts(words, lexicon) == [reference.lemma(word, "en") for word in words]
    assert lemma_texts(words, both) == [reference.lemma(word, "en", "sv") for word in words]


def test_of_several_languages_the_first_decides(small_dictionaries, both):
    words = ["mice", "lost", "böcker", "vuoden", "batnekarna", "batnekings"]
    assert lemma_texts(words, both) == ["mouse", "lose", "bok", "vuosi", "batnek", "batnek"]
    other = Lexicon.of(["sv", "en"])
    assert lemma_texts(words, other) == ["fel", "lossa", "bok", "vuosi", "batnek", "batnek"]
    # An ending of one language means nothing, or another thing, in the other.
    assert lemma_texts(["unknownings", "unknownarna"], both) == ["unknownings", "unknownarna"]


def test_languages_without_a_dictionary_add_nothing(lexicon):
    assert Lexicon.of([]) is NO_LEXICON
    assert Lexicon.of(["zh", "ja"]) is NO_LEXICON
    assert not len(NO_LEXICON)
    with_more = Lexicon.of(["zh", "en"]).to_arrays()
    assert all(np.array_equal(with_more[name], array) for name, array in lexicon.to_arrays().items())


def test_words_without_a_lexicon_are_their_own_lemmas():
    assert lemma_texts(["mice", "", "語"], NO_LEXICON) == ["mice", "", "語"]


@settings(max_examples=60, deadline=None)
@given(st.lists(some_word, max_size=8), st.lists(some_word, max_size=8), st.booleans())
def test_a_reduced_lexicon_gives_the_lemmas_that_are_known(lexicon, both, known, words, several):
    whole = both if several else lexicon
    keys = np.unique(np.array([key_of(word.encode()) for word in known], np.int64))
    part = whole.reduced(keys)
    words = [*words, *known, *WORDS]
    expected, found = lemmas_of(words, whole)[0], lemmas_of(words, part)[0]
    of_known = np.isin(expected, keys)
    assert np.array_equal(found[of_known], expected[of_known])
    # A form that is a lemma of the model, but has another lemma, does not become that of the model.
    listed = np.isin(np.array([key_of(word.encode()) for word in words]), keys)
    assert np.array_equal(found[listed], expected[listed])
    assert not part.texts
    again = Lexicon.from_arrays(part.to_arrays())
    assert np.array_equal(lemmas_of(words, again)[0], found)


def test_a_reduced_lexicon_is_small(lexicon):
    part = lexicon.reduced(np.array(sorted(map(key_of, [b"mouse", b"batnek", b"talo"]))))
    assert len(part.forms) == 2 + 3 + 2  # mice, mouse; batnek and its two forms; taloissa, talo
    assert len(part.lemma_keys) == 3
    assert (np.diff(part.forms) > 0).all()
    arrays = part.to_arrays()
    assert {name: array.dtype for name, array in arrays.items()} == {name: np.dtype(d) for name, d in FIELDS.items()}


def test_a_rule_works_in_a_model_that_knows_no_form(lexicon):
    known = np.array([key_of(b"strange")])
    part = lexicon.reduced(known)
    assert not len(part.forms)
    assert len(part)
    (key,), (source,) = lemmas_of(["strangeings"], part)
    assert key == known[0]
    assert source < OWN
