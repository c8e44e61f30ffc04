"""With words as written, the matrix is scikit-learn's, up to the order of the columns."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from tests.features.texts import HARD, python_words, random_corpus, unicode_texts
from xmc_tf.features import Tfidf
from xmc_tf.params import TfidfParams


def assert_same_as_sklearn(texts, params: TfidfParams) -> None:
    theirs = TfidfVectorizer(
        ngram_range=(1, params.ngram_max),
        min_df=params.min_df,
        sublinear_tf=params.sublinear_tf,
        lowercase=params.lowercase,
        norm=None if params.norm == "none" else params.norm,
        token_pattern=r"(?u)\b" + r"\w" * (params.min_word_length - 1) + r"\w+\b",
        dtype=np.float32,
        decode_error="replace",
    )
    expected = theirs.fit_transform(texts)
    ours = Tfidf.fit(texts, params)
    assert sorted(ours.names) == sorted(theirs.vocabulary_)
    got = ours.transform(texts)
    assert got.dtype == np.float32
    assert got.shape == expected.shape
    assert got.nnz == expected.nnz
    got.check_format(full_check=True)
    assert all((np.diff(row.indices) > 0).all() for row in got)
    columns = [theirs.vocabulary_[name] for name in ours.names]
    np.testing.assert_allclose(got.toarray(), expected[:, columns].toarray(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    "params",
    [
        TfidfParams.plain(),
        TfidfParams.plain(ngram_max=1, min_df=1),
        TfidfParams.plain(ngram_max=3, min_df=3, sublinear_tf=False),
        TfidfParams.plain(norm="l1"),
        TfidfParams.plain(norm="none", lowercase=False),
        TfidfParams.plain(min_word_length=1, ngram_max=4, min_df=1),
        TfidfParams.plain(min_word_length=3),
    ],
    ids=str,
)
def test_random_corpus(params):
    assert_same_as_sklearn(random_corpus(400, seed=1), params)


def test_hard_texts():
    texts = HARD + HARD[::-1]
    assert_same_as_sklearn(texts, TfidfParams.plain())
    assert_same_as_sklearn(texts, TfidfParams.plain(ngram_max=3, min_df=1))


@settings(max_examples=15)
@given(st.lists(unicode_texts, max_size=8), st.integers(1, 3), st.integers(1, 2), st.booleans())
def test_any_texts(texts, ngram_max, min_df, sublinear_tf):
    # Twice, that every feature is in two documents; "word" that there is one.
    assert_same_as_sklearn(
        [*texts, *texts, "word", "word"],
        TfidfParams.plain(ngram_max=ngram_max, min_df=min_df, sublinear_tf=sublinear_tf),
    )


def test_the_most_frequent_features_are_kept_and_the_widest_spread_come_first():
    texts = random_corpus(300, seed=2)
    total: Counter[str] = Counter()
    documents: Counter[str] = Counter()
    for text in texts:
        words = python_words(text.encode())
        ngrams = words + [f"{first} {second}" for first, second in pairwise(words)]
        total.update(ngrams)
        documents.update(set(ngrams))
    candidates = [name for name in total if documents[name] >= 2]
    for most in (1, 7, 100, 250):
        names = Tfidf.fit(texts, TfidfParams.plain(max_features=most)).names
        assert len(names) == most
        ranks = sorted(((total[name], documents[name]) for name in candidates), reverse=True)[:most]
        assert sorted(((total[name], documents[name]) for name in names), reverse=True) == ranks
        spread = [documents[name] for name in names]
        assert spread == sorted(spread, reverse=True)


def test_ties_do_not_depend_on_the_order_of_the_texts():
    texts = [f"aa{i} bb{i} cc{i}" for i in range(50)] * 2
    params = TfidfParams.plain(max_features=40)
    forward = Tfidf.fit(texts, params)
    assert Tfidf.fit(texts[::-1], params).names == forward.names


def test_texts_that_were_not_fitted_on():
    corpus = random_corpus(300, seed=3)
    theirs = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True, dtype=np.float32).fit(corpus)
    ours = Tfidf.fit(corpus, TfidfParams.plain())
    new = [*random_corpus(50, seed=4, words=600), "", "nothing known", "w1 w1 w1"]
    columns = [theirs.vocabulary_[name] for name in ours.names]
    got = ours.transform(new)
    np.testing.assert_allclose(got.toarray(), theirs.transform(new)[:, columns].toarray(), rtol=1e-6, atol=1e-7)
    assert np.diff(got.indptr)[-3:-1].tolist() == [0, 0]
