"""Tokens in a data set: equal to those of the tokenizer, stored once, and only a saving of time."""

import numpy as np
import pytest

from tests.encoder.vocabularies import wordpiece
from xmc_tf.data.reading import Reading
from xmc_tf.encoder import TextTokenizer
from xmc_tf.encoder.truncation import TruncationCounter
from xmc_tf.jobs.tokens import TokenCount, TokenizedTexts
from xmc_tf.tables import stored_tokens
from xmc_tf.tables.preparation import prepare
from xmc_tf.tables.store import TableStore


@pytest.fixture
def store(multi, tmp_path):
    return prepare(multi, tmp_path / "multi.sqlite")


@pytest.fixture(scope="module")
def tokenizer():
    return TextTokenizer.of(wordpiece("bert"))


def tokenize(store, tokenizer, reading, split="train", **about):
    """Return windows, their numbers, the truncation counts, and the count of computed and read documents."""
    count, truncation = TokenCount(**about), TruncationCounter()
    texts = TokenizedTexts(store.path, store.ids(split), count)
    parts = [tokenizer.windows(texts[at : at + 50], reading, truncation) for at in range(0, len(texts), 50)]
    return [one for part in parts for one in part[0]], np.concatenate([part[1] for part in parts]), truncation, count


@pytest.mark.parametrize("reading", [Reading(7), Reading(7, 3), Reading(100)])
def test_stored_tokens_are_those_of_the_tokenizer(store, tokenizer, reading):
    truncation = TruncationCounter()
    expected, counts = tokenizer.windows(list(store.texts("train")), reading, truncation)
    for computed in (160, 0):
        found, numbers, truncated, count = tokenize(store, tokenizer, reading)
        assert [one.tolist() for one in found] == [one.tolist() for one in expected]
        assert np.array_equal(numbers, counts)
        assert truncated == truncation
        assert (count.computed, count.read) == (computed, 160 - computed)


def test_another_tokenizer_or_length_is_tokenized_again(store, tokenizer):
    tokenize(store, tokenizer, Reading(7))
    other = TextTokenizer.of(wordpiece("bert", lowercase=False))
    for own, reading in ((other, Reading(7)), (tokenizer, Reading(8)), (tokenizer, Reading(7, 2))):
        assert tokenize(store, own, reading)[3].computed == 160
    assert tokenize(store, tokenizer, Reading(7, 2, "max"))[3].computed == 0, "the windows are the same"
    assert tokenize(store, tokenizer, Reading(7))[3].computed == 0
    assert tokenize(store, tokenizer, Reading(7), "test")[3].computed == 20


def test_wide_ids_and_empty_documents_come_back(store):
    wide = stored_tokens.DocumentTokens([np.array([1, 70_000], np.int32), np.array([2], np.int32)], 9.5, 3)
    empty = stored_tokens.DocumentTokens([np.empty(0, np.int32)], 0.0, 0)
    tokens = stored_tokens.StoredTokens(
        TableStore.open(store.path, write=True), tokenizer="a", max_length=9, max_windows=2
    )
    tokens.put({3: wide, 4: empty})
    found = tokens.get(np.array([2, 3, 4]))
    assert sorted(found) == [3, 4]
    assert [one.tolist() for one in found[3].windows] == [[1, 70_000], [2]]
    assert [one.tolist() for one in found[4].windows] == [[]]
    assert found[3][1:] == (9.5, 3)


def test_only_the_newest_tokenizations_stay(store, tokenizer):
    for length in range(5, 6 + stored_tokens._MOST):
        tokenize(store, tokenizer, Reading(length))
    assert tokenize(store, tokenizer, Reading(5), storing=False)[3].computed == 160
    assert tokenize(store, tokenizer, Reading(6), storing=False)[3].computed == 0
    rows = store.connection.execute("SELECT count(*) FROM tokens").fetchone()[0]
    assert rows == 160 * stored_tokens._MOST


def test_a_database_that_cannot_be_written_to_does_not_stop_a_run(store, tokenizer, caplog, monkeypatch):
    def full(*_):
        raise OSError(28, "the disk is full")

    monkeypatch.setattr(stored_tokens.StoredTokens, "put", full)
    found, _, _, count = tokenize(store, tokenizer, Reading(7))
    assert len(found) == 160
    assert caplog.text.count("tokens are not stored") == 1
    assert not count.storing
