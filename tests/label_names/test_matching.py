"""Matches of names in texts: the rules by hand, and the compiled code against a plain reference for any text."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.label_names.cases import NAMES, TEXTS
from xmc_tf.label_names import find_mentions, label_vocabulary
from xmc_tf.label_names.characters import SKIPPED, UNSPACED, character_table
from xmc_tf.label_names.find_mentions import count_documents, find_matches
from xmc_tf.label_names.index import build_index, words_of_names
from xmc_tf.label_names.kernels import EXACT, INFLECTED, LONGEST, PARTIAL, PREFIX
from xmc_tf.label_names.reading import as_written


def index_of(names, documents_with=None):
    """Return an index in which all words are equally rare, unless their numbers of documents are given."""
    vocabulary = label_vocabulary(names)
    found = words_of_names(vocabulary.names, vocabulary.labels, as_written())
    counts = np.ones(len(found.words), int) if documents_with is None else documents_with
    return build_index(found, counts, 1000)


def test_words_weigh_by_their_rarity():
    index = index_of(["aardvarks", "buffaloes", "camels"], np.array([1000, 0, 249]))
    # A word of all documents weighs least, but not nothing; others more by the logarithm of their rarity.
    assert sorted(index.weights.tolist()) == [1, 1 + round(16 * np.log2(1001 / 250)), 1 + round(16 * np.log2(1001))]


def matches(index, texts):
    """Return for each text its matches: label and grade."""
    found = find_matches(index, texts, as_written(), threads=1)
    pairs = [(int(index.labels[name]), int(grade)) for name, grade in zip(found.names, found.grades, strict=True)]
    return [set(pairs[a:b]) for a, b in zip(found.splits[:-1], found.splits[1:], strict=True)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Cats!", {(0, EXACT)}),
        ("cat", set()),  # too short to agree in six letters, and not the same
        ("the planet MERCURY", {(1, EXACT)}),  # without its qualifier
        ("heatings, domestically", {(2, INFLECTED)}),  # another order, other endings
        ("central heating", {(2, PARTIAL)}),
        ("analyses of soils", {(3, PARTIAL)}),  # "analys" agrees, "soil" and "soils" do not
        ("猫の病気について", {(4, EXACT)}),  # without spaces
        ("E\u0301COLE PRIMAIRE", {(5, EXACT)}),  # another way to write the accent
        ("ecole primaires", {(5, INFLECTED)}),
        ("a meadow", {(6, EXACT)}),  # an alternative name
        ("", set()),
    ],
)
def test_matches_by_hand(text, expected):
    assert matches(index_of(NAMES), [text]) == [expected]


def test_rare_words_count_more():
    names = ["history of Karelia"]
    words = words_of_names(names, np.array([0]), as_written())
    rare = dict.fromkeys(words.words.tolist(), 500)
    rare[words.words[words.name_words[2]]] = 1  # Karelia is rare, the other words are frequent
    index = index_of(names, np.array([rare[word] for word in words.words.tolist()]))
    assert matches(index, ["old Karelia", "history of art"]) == [{(0, PARTIAL)}, set()]
    assert len(index.listed) == 1, "listed under its rarest word only"


def characters(text):
    """Return the characters as the table maps them, by the plain rule."""
    table = character_table()
    return [int(code) for code in (table[ord(one)] for one in text) if code != SKIPPED]


def reference_words(text):
    """Return the words of a text as tuples of characters."""
    found, run = [], []
    for code in [*characters(text), 0]:
        kind = 0 if code == 0 else 2 if code & UNSPACED else 1
        if run and (kind != run[-1][0]):
            codes = [one for _, one in run]
            found += [tuple(codes)] if run[-1][0] == 1 or len(codes) == 1 else list(pairwise(codes))
            run = []
        if kind:
            run.append((kind, code))
    return found


def reference_matches(names, text):
    """Return label and grade of each match, with words of equal weight."""
    here = reference_words(text)
    starts, whole = {word[:PREFIX] for word in here}, {word[:LONGEST] for word in here}
    found = set()
    for label, name in enumerate(names):
        words = {}
        for word in reference_words(name):
            words.setdefault(word[:PREFIX], word[:LONGEST])
        matched = [start for start in words if start in starts]
        if words and 2 * len(matched) >= len(words):
            exact = all(words[start] in whole for start in matched)
            found.add((label, PARTIAL if len(matched) < len(words) else EXACT if exact else INFLECTED))
    return found


some_text = st.text(
    st.one_of(
        st.sampled_from("abcdé çABİıß ﬁ-'_0١猫の病カ한글ก\u0301\u00ad\u200d\x00"),
        st.characters(exclude_categories=["Cs"]),
    ),
    max_size=30,
)


@given(st.lists(some_text.filter(lambda name: "\t" not in name and name.strip()), min_size=1, max_size=6), some_text)
@example(["abcdefg xyz"], "xyz abcdefgh")
@example(["猫"], "猫")
@example(["猫の"], "の猫の")
def test_any_text_matches_as_the_plain_rule_says(names, text):
    words = words_of_names(names, np.arange(len(names)), as_written())
    index = build_index(words, np.zeros(len(words.words), int), 1)
    weights_differ = len(set(index.weights.tolist())) > 1
    assert not weights_differ
    assert matches(index, [text]) == [reference_matches(names, text)]


@settings(max_examples=40)
@given(st.lists(st.binary(max_size=40), max_size=5))
def test_any_bytes_are_read_as_their_characters(lines):
    index = index_of(["abc", "é", "abcdef xyz"])
    decoded = [line.decode("utf-8", "replace") for line in lines]
    assert matches(index, lines) == matches(index, decoded)


def test_threads_and_batches_do_not_matter():
    index, texts = index_of(NAMES), TEXTS * 2000
    one, many = (find_matches(index, texts, as_written(), threads) for threads in (1, 3))
    assert all(np.array_equal(a, b) for a, b in zip(one, many, strict=True))


def test_batches_are_read_when_they_are_needed(monkeypatch):
    read, batches = [], find_mentions._batches
    monkeypatch.setattr(find_mentions, "_BYTES", 1)
    monkeypatch.setattr(find_mentions, "_batches", lambda texts: (read.append(one) or one for one in batches(texts)))
    next(find_mentions._mapped(len, ["a"] * 1000, 2))
    assert len(read) < 10


def test_documents_with_a_word_are_counted_once_each():
    found = words_of_names(["cats"], np.array([0]), as_written())
    assert count_documents(found.words, ["cats cats", "cats", "dogs"], as_written()).tolist() == [2]
