"""Fitting: streamed, the same on any number of threads, clear about what it cannot use."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.features.texts import HARD, random_corpus
from tests.refusals import refused
from xmc_tf.data import TextFile
from xmc_tf.features import Tfidf
from xmc_tf.features.counts import NgramCounter
from xmc_tf.features.texts import text_batches
from xmc_tf.params import TfidfParams


def same(left: Tfidf, right: Tfidf) -> bool:
    return all(
        np.array_equal(getattr(left._vocabulary, name), getattr(right._vocabulary, name))
        for name in ("keys", "columns", "idf")
    )


@pytest.fixture(scope="module")
def corpus() -> list[str]:
    # More than two batches, so that threads have something to share.
    return random_corpus(5000, seed=5, words=2000, length=8) + [text.decode("utf-8", "replace") for text in HARD]


def test_threads_and_kinds_of_text_change_nothing(corpus, tmp_path):
    lines = [text.replace("\n", " ") for text in corpus]
    path = tmp_path / "texts.txt"
    path.write_bytes(b"".join(line.encode() + b"\n" for line in lines))
    fitted = Tfidf.fit(lines, threads=1)
    rows = fitted.transform(lines, threads=1)
    for texts in (TextFile(path), [line.encode() for line in lines], np.array(lines, dtype=object)):
        again = Tfidf.fit(texts, threads=3)
        assert same(again, fitted)
        assert again.names == fitted.names
        assert again.nr_documents == len(lines)
        weighed = again.transform(texts, threads=3)
        assert np.array_equal(weighed.indptr, rows.indptr)
        assert np.array_equal(weighed.indices, rows.indices)
        assert np.array_equal(weighed.data, rows.data)


def test_a_text_alone_weighs_what_it_weighs_among_others(corpus):
    tfidf = Tfidf.fit(corpus)
    rows = tfidf.transform(corpus)
    for i in range(0, len(corpus), 97):
        alone = tfidf.transform(corpus[i : i + 1])
        assert np.array_equal(alone.indices, rows[i].indices)
        assert np.array_equal(alone.data, rows[i].data)


def test_words_of_all_texts_say_nothing_and_rare_ones_most():
    tfidf = Tfidf.fit(["of cats"] * 3 + ["of dogs"] * 2, params=TfidfParams(ngram_max=1))
    of, cats, dogs, unknown = tfidf.information(tfidf.transform(["of", "cats", "dogs", "zebras"]))
    assert (of, unknown) == (0, 0)
    assert 0 < cats < dogs
    assert tfidf.information(tfidf.transform(["of cats, of dogs"]))[0] == pytest.approx(cats + dogs)


def test_memory_grows_with_the_ngrams_and_not_with_the_documents(monkeypatch):
    sizes = []

    class Watched(NgramCounter):
        def counted(self):
            sizes.append((len(self._entries), len(self._slots), len(self._words)))
            return super().counted()

    monkeypatch.setattr("xmc_tf.features.tfidf.NgramCounter", Watched)
    texts = random_corpus(1000, seed=6)
    for times in (4, 40):
        Tfidf.fit(texts * times)
    # Those of n-grams and those of pieces, of either number of documents.
    assert len(sizes) == 4
    assert sizes[:2] == sizes[2:]


@given(st.lists(st.sampled_from([0, 1, 5000, 300_000, 1 << 20, 2_000_000]), max_size=12), st.integers(0, 3))
def test_batches_are_small_and_lose_nothing(sizes, many):
    texts = [b"x" * size for size in sizes] + [b""] * (1999 * many)
    batches = list(text_batches(texts))
    assert [text for batch in batches for text in batch] == texts
    assert all(len(batch) == 1 or sum(map(len, batch)) <= 1 << 20 for batch in batches)
    assert all(1 <= len(batch) <= 2000 for batch in batches)


@pytest.mark.parametrize(
    ("texts", "params", "said"),
    [
        (
            ["one apple", "two pears", "one plum"], TfidfParams(min_df=3),
            ["no feature is left", "min_df = 3", "no word is in more than 2 of them", "set min_df to 2"],
        ),
        ([], None, ["no words in 0 documents", "min_word_length"]),
        (["", "..."], None, ["no words in 2 documents", "min_word_length"]),
        (["a b", "c d"], None, ["no words in 2 documents", "min_word_length"]),
        ("a text", None, ["single text", "[text]"]),
        (["a text", b"another", float("nan")], None, ["text 2 is not a text", "str or bytes", "float"]),
    ],
)  # fmt: skip
def test_texts_that_cannot_be_fitted(texts, params, said):
    refused(said, Tfidf.fit, texts, params or TfidfParams())


def test_no_texts_are_no_rows():
    tfidf = Tfidf.fit(["some words", "some words"])
    rows = tfidf.transform([])
    assert rows.shape == (0, 3)
    assert rows.dtype == np.float32


def test_long_work_shows_progress(monkeypatch, capsys):
    monkeypatch.setattr("xmc_tf.common.progress.time.monotonic", iter(range(0, 10**6, 20)).__next__)
    texts = random_corpus(100, seed=7)
    Tfidf.fit(texts).transform(texts)
    shown = capsys.readouterr().err
    assert "TF-IDF: counting words: 100%, 100 of 100 documents" in shown
    assert "TF-IDF: weighing words: 100%, 100 of 100 documents" in shown
