"""Lemmas and pieces of words in names and texts."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from tests.words.small import small_dictionaries_in
from xmc_tf.label_names import LabelNames
from xmc_tf.label_names.find_mentions import find_matches
from xmc_tf.label_names.index import build_index, words_of_names
from xmc_tf.label_names.kernels import EXACT, PARTIAL
from xmc_tf.label_names.reading import as_written, reading_of


@pytest.fixture(scope="module", autouse=True)
def _small_dictionaries(tmp_path_factory):
    with small_dictionaries_in(tmp_path_factory.mktemp("dictionaries")):
        yield


def matches(names, texts, languages):
    """Return for each text the names that match, and their grades."""
    reading = reading_of(languages)
    words = words_of_names(names, np.arange(len(names)), reading)
    reading = reading.reduced(words.words, words.exact)
    index = build_index(words, np.ones(len(words.words), int), 1000)
    found = find_matches(index, texts, reading, threads=1)
    pairs = list(zip(found.names.tolist(), found.grades.tolist(), strict=True))
    return [set(pairs[a:b]) for a, b in zip(found.splits[:-1], found.splits[1:], strict=True)]


@pytest.mark.parametrize(
    ("languages", "text", "expected"),
    [
        (["en"], "MICE in the attic", {(0, EXACT)}),
        (["en"], "a mouse", {(0, EXACT)}),
        (["en"], "Häuser", {(1, EXACT)}),  # accents are removed, from the forms of the dictionary too
        ([], "mice", set()),
        (["sv"], "mice", set()),  # another lemma in this language
        (["sv", "en"], "mice", set()),  # the first language decides
        (["en", "sv"], "mice", {(0, EXACT)}),
        (["sv"], "böcker", {(2, EXACT)}),
    ],
)
def test_forms_match_by_their_lemmas(languages, text, expected):
    assert matches(["mouse", "Haus", "bok"], [text], languages) == [expected]


def test_parts_of_compounds_match_by_their_pieces_where_compounds_are_written_as_one_word():
    names, texts = ["bibliotek"], ["skolbibliotekarie", "biografi"]
    assert matches(names, texts, ["sv"]) == [{(0, PARTIAL)}, set()]
    assert matches(names, texts, ["en"]) == [set(), set()]


def test_a_model_keeps_the_forms_that_matter_and_saves_them(tmp_path):
    names, texts = ["mouse", "library"], ["mice", "no animal", "a mouse", "the library"]
    Y = csr_matrix(np.array([[1, 0], [0, 0], [1, 0], [0, 1]], np.float32))
    learned, _ = LabelNames.learn(names, texts, Y, language="en")
    assert 0 < len(learned.reading.forms) < len(reading_of(["en"]).forms)
    assert learned.mentions(["mice"]).precision[0] > 0
    learned.save(tmp_path / "names")
    loaded = LabelNames.load(tmp_path / "names")
    assert all(map(np.array_equal, loaded.mentions(texts), learned.mentions(texts)))
    for one, other in zip(loaded.reading, learned.reading, strict=True):
        assert np.array_equal(one, other)


def test_a_file_without_lemmas_reads_words_as_they_are_written(tmp_path):
    names, texts = ["mouse", "library"], ["mouse", "the library"]
    learned, _ = LabelNames.learn(names, texts, csr_matrix(np.eye(2, dtype=np.float32)))
    learned.save(tmp_path / "names")
    with np.load(tmp_path / "names" / "names.npz") as held:
        assert not {"forms", "lemma_of", "lemma_keys", "lemma_exact", "piece"} & set(held)
    assert len(LabelNames.load(tmp_path / "names").reading.forms) == len(as_written().forms) == 0
