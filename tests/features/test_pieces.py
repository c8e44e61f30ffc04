"""Pieces of long words: the compiled code against plain Python, and what they are for."""

from itertools import pairwise

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.features.texts import HARD
from tests.words.small import small_dictionaries_in
from xmc_tf.features import Tfidf
from xmc_tf.features.graph.words import piece_keys
from xmc_tf.features.kernels.pieces import FACTOR, LEAST, OFFSET
from xmc_tf.features.texts import splitter
from xmc_tf.params import TfidfParams
from xmc_tf.words.dictionaries import Strings
from xmc_tf.words.lexicon import NO_LEXICON

letters = st.text("abcä語ß\U00010400٣_", max_size=24)
any_text = st.lists(letters | st.text(max_size=20), max_size=6).map(" ".join)


def python_pieces(word: str, length: int) -> list[str]:
    """Return the pieces of a word, "<" and ">" at its ends."""
    if len(word) < LEAST:
        return []
    marked = f"<{word}>"
    return [marked[at : at + length] for at in range(len(marked) - length + 1)]


def keys_of(pieces: list[str]) -> list[int]:
    with np.errstate(over="ignore"):
        return (Strings.of([piece.encode() for piece in pieces]).keys() * FACTOR + OFFSET).tolist()


def name_of(piece: str) -> str:
    before, after = "" if piece.startswith("<") else "*", "" if piece.endswith(">") else "*"
    return before + piece.strip("<>") + after


@settings(max_examples=50)
@given(st.lists(any_text, max_size=4), st.integers(3, 16))
def test_any_text_and_any_length(texts, length):
    encoded = [text.encode("utf-8", "replace") for text in texts]
    split = splitter(TfidfParams(pieces=length, min_word_length=1), NO_LEXICON)(encoded)
    words = [word.decode() for word in split.words(np.arange(len(split.ends)))]
    expected = [(place, piece) for place, word in enumerate(words) for piece in python_pieces(word, length)]
    assert split.word_of_piece.tolist() == [place for place, _ in expected]
    assert split.pieces.tolist() == keys_of([piece for _, piece in expected])
    names = split.piece_names(np.arange(len(expected)), length)
    assert [name.decode() for name in names] == [name_of(piece) for _, piece in expected]
    counts = [sum(a <= place < b for place, _ in expected) for a, b in pairwise(split.row_splits)]
    assert np.diff(split.piece_splits).tolist() == counts


def test_by_hand():
    names = Tfidf.fit(["Talvisota syksy"] * 2, TfidfParams(pieces=5, language="none", ngram_max=1)).names
    pieces = ["talv*", "*talvi*", "*alvis*", "*lviso*", "*visot*", "*isota*", "*sota"]
    assert sorted(names) == sorted(["talvisota", "syksy", *pieces])


def test_without_pieces_there_are_none():
    split = splitter(TfidfParams(pieces=0), NO_LEXICON)([b"a longer textual sequence", *HARD])
    assert not len(split.pieces)
    assert not split.piece_splits.any()


def test_words_that_share_parts_are_alike():
    texts = ["maailmansota", "talvisodan", "kirjasto", "kirjaston"] * 2
    rows = Tfidf.fit(texts, TfidfParams(language="none")).transform(texts[:4])
    plain = Tfidf.fit(texts, TfidfParams.plain()).transform(texts[:4])
    alike = (rows @ rows.T).toarray()
    assert alike[2, 3] > 0.3
    assert alike[2, 0] == 0
    assert (plain @ plain.T).toarray()[2, 3] == 0


@pytest.mark.parametrize(
    ("text", "language", "weight", "expected"),
    [
        ("long " * 30, "none", None, 0.5),
        ("long " * 50, "none", None, 0.3),
        ("long " * 30, "af,sv", None, 0.5),
        ("long " * 30, "sv,af", None, 0.7),  # the first language decides
        ("long " * 50, "sv", None, 0.5),
        ("long " * 50, "none", 0.7, 0.7),
        ("long ", "sv", 2.0, 2.0),
    ],
)
def test_the_weight_of_pieces(text, language, weight, expected, tmp_path):
    texts = [text + "wordlike"] * 4
    with small_dictionaries_in(tmp_path):
        tfidf = Tfidf.fit(texts, TfidfParams(piece_weight=weight, language=language, norm="none", ngram_max=1))
    assert tfidf.params.piece_weight == expected
    row = tfidf.transform(["wordlike"]).toarray()[0]
    of = dict(zip(tfidf.names, row.tolist(), strict=True))
    assert of["wordlike"] == pytest.approx(1.0)
    assert of["word*"] == of["*like"] == pytest.approx(expected)


def test_the_graph_takes_a_word_of_a_megabyte():
    # Memory for the square of its length would be a terabyte.
    words = tf.constant([b"x" * (1 << 20), b"short", "ä語".encode() * 4])
    keys, splits = piece_keys(words, tf.constant([0, 1, 2, 3, 3], tf.int64), 5)
    assert splits.numpy().tolist() == [0, (1 << 20) - 2, (1 << 20) - 2, (1 << 20) + 4, (1 << 20) + 4]
    assert keys.numpy()[-6:].tolist() == keys_of(python_pieces("ä語" * 4, 5))
    assert keys.numpy()[[0, 1, -8, -7]].tolist() == keys_of(["<xxxx", "xxxxx", "xxxxx", "xxxx>"])


def test_the_number_of_pieces_is_bounded_as_that_of_words():
    rng = np.random.default_rng(0)
    texts = ["".join(rng.choice(list("abcdefgh"), 9)) for _ in range(300)] * 2
    names = Tfidf.fit(texts, TfidfParams(max_features=100, language="none", ngram_max=1)).names
    is_piece = ["*" in name for name in names]
    assert sum(is_piece) == len(is_piece) - sum(is_piece) == 100
