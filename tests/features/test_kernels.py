"""The compiled kernels return what the TensorFlow graph returns, bit for bit."""

from itertools import product

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.features.texts import HARD, random_corpus
from xmc_tf.features import Tfidf
from xmc_tf.features.characters import NR_CHARACTERS
from xmc_tf.features.graph.words import keys_of, ngram_keys, piece_keys, split_words
from xmc_tf.features.kernels.weights import logarithms
from xmc_tf.features.texts import splitter
from xmc_tf.params import TfidfParams
from xmc_tf.words.lexicon import NO_LEXICON

# A final sigma depends on its neighbours, also on those that are in no word; each of these letters has its own rule.
TRICKY = "ΣΣσςAaΑİIıÌÍĨĮ'.:\u00ad\u0301\u0307\u0345\u200d\u02b0ªⅠⒶᾼßẞȺKǅﬁ١²_ 𐐀𝒜中\x00\ufeff\ufffd\U0010ffff"
any_text = st.text(st.sampled_from(TRICKY) | st.characters(exclude_categories=["Cs"]), max_size=40).map(str.encode)
# Bytes with which characters of several bytes begin and continue, so that many sequences are nearly right.
any_bytes = st.lists(
    st.sampled_from(b"a\x00\x80\xbf\xc0\xc2\xce\xa3\xdf\xe0\xa0\xed\xef\xf0\x90\xf4\xf5\xff"), max_size=20
).map(bytes)
texts_of_all_kinds = st.lists(st.lists(any_text | any_bytes, max_size=3).map(b"".join), max_size=5)
all_params = st.builds(
    TfidfParams,
    ngram_max=st.integers(1, 8),
    min_df=st.just(1),
    sublinear_tf=st.booleans(),
    lowercase=st.booleans(),
    min_word_length=st.integers(1, 4),
    norm=st.sampled_from(["l2", "l1", "none"]),
    language=st.sampled_from(["auto", "none"]),
    pieces=st.just(0) | st.integers(3, 16),
)
SPLITTING = [
    TfidfParams(lowercase=lowercase, min_word_length=1, language=language)
    for lowercase, language in ((True, "auto"), (False, "none"))
]


def assert_same_words(texts: list[bytes], params: TfidfParams) -> None:
    ours = splitter(params, NO_LEXICON)(texts)
    words, row_splits = split_words(
        tf.constant(texts, tf.string, [len(texts)]), params.lowercase, params.min_word_length, params.splits_scripts
    )
    if params.pieces:
        pieces, piece_splits = piece_keys(words, row_splits, params.pieces)
        assert np.array_equal(ours.pieces, pieces.numpy())
        assert np.array_equal(ours.piece_splits, piece_splits.numpy())
    keys, whole = ngram_keys(keys_of(words), row_splits, params.ngram_max)
    words = words.numpy().tolist()
    assert ours.letters.tobytes() == b"".join(words)
    assert np.array_equal(ours.ends, np.cumsum([len(word) for word in words]))
    assert np.array_equal(ours.row_splits, row_splits.numpy())
    assert np.array_equal(ours.keys[whole.numpy()], keys.numpy()[whole.numpy()])


def assert_same_features(tfidf: Tfidf, texts: list[bytes]) -> None:
    ours = tfidf.transform(texts)
    row_splits, ids, weights = (part.numpy() for part in tfidf.graph()(tf.constant(texts, tf.string, [len(texts)])))
    assert np.array_equal(ours.indptr, row_splits)
    assert np.array_equal(ours.indices, ids)
    assert ours.data.dtype == weights.dtype
    assert ours.data.tobytes() == weights.tobytes()


@settings(max_examples=25)
@given(texts_of_all_kinds, all_params)
def test_words_and_keys(texts, params):
    assert_same_words(texts, params)


@settings(max_examples=15)
@given(texts_of_all_kinds, all_params)
def test_features(texts, params):
    tfidf = Tfidf.fit([b"words and other words", *texts], params)
    assert_same_features(tfidf, [*texts, b"other words", *texts[:2]])


@pytest.mark.parametrize(
    ("sublinear_tf", "norm", "ngram_max"),
    [(True, "l2", 3), (False, "l1", 1), (False, "none", 3)],
)
def test_features_of_long_and_hard_texts(sublinear_tf, norm, ngram_max):
    corpus = [text.encode() for text in random_corpus(300, seed=11)]
    long = " ".join(random_corpus(400, seed=12, words=3000)).encode()
    repeated = b"w1 " * 70_000 + b"w2 " * 383 + b"w3"
    tfidf = Tfidf.fit([*corpus, *HARD, long], TfidfParams(sublinear_tf=sublinear_tf, norm=norm, ngram_max=ngram_max))
    for texts in ([*HARD, *corpus, long, repeated], [long], [repeated], [corpus[0]], [b"w1 " * 7], [b""], []):
        assert_same_features(tfidf, texts)


@pytest.mark.full
def test_every_character_also_beside_a_sigma():
    letters = [chr(code).encode() for code in range(NR_CHARACTERS) if not 0xD800 <= code < 0xE000]
    sigma = "aΣ".encode()
    for params in SPLITTING:
        if params.lowercase:
            assert_same_words([sigma + letter + b" " + sigma + letter + b"b" for letter in letters], params)
        else:
            assert_same_words([b"a" + letter + b"b" for letter in letters], params)


def test_every_sequence_of_three_bytes_at_the_edges_of_utf8():
    edges = [0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xA3, 0xBF, 0xC0, 0xC1, 0xC2, 0xCE, 0xDF]
    edges += [0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xF7, 0xF8, 0xFC, 0xFE, 0xFF]
    texts = [b"a" + bytes(sequence) + b"b" for sequence in product(edges, repeat=3)]
    for params in SPLITTING:
        assert_same_words(texts, params)


def test_words_of_every_length():
    rng = np.random.default_rng(3)
    assert_same_words([bytes(rng.integers(97, 123, size, np.uint8)) for size in range(1, 400)], TfidfParams())


def test_the_logarithm_of_every_count():
    counts = np.arange(1, (1 << 24) + 1)
    assert np.array_equal(logarithms(counts), tf.math.log(tf.constant(counts, tf.float32)).numpy())


def test_words_are_given_by_their_place():
    split = splitter(TfidfParams(), NO_LEXICON)([b"one two", b"", b"three"])
    assert split.words(np.array([2, 0, 1])) == [b"three", b"one", b"two"]
    assert split.words(np.array([], np.int64)) == []
