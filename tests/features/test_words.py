"""Splitting in the graph gives the words that scikit-learn's analyzer gives."""

import os
import subprocess
import sys

import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.features.texts import HARD, in_all_versions, python_words
from xmc_tf.features.graph.words import keys_of, ngram_keys, split_words


def words_of(texts: list[bytes], lowercase: bool = True, min_length: int = 2) -> list[list[str]]:
    words, splits = split_words(tf.constant(texts, tf.string, [len(texts)]), lowercase, min_length)
    flat = [word.decode() for word in words.numpy()]
    return [flat[start:end] for start, end in zip(splits.numpy(), splits.numpy()[1:], strict=False)]


@settings(max_examples=40)
@given(st.lists(st.binary(max_size=40) | st.sampled_from(HARD[:-1]), min_size=1, max_size=3), st.booleans())
def test_any_bytes(pieces, lowercase):
    # Only the letters that ASCII has are sure to be in both tables of unicode when bytes are random.
    text = b"".join(pieces)
    found = words_of([text], lowercase)[0]
    decoded = text.decode("utf-8", "replace")
    if all(map(in_all_versions, decoded)):
        assert found == python_words(text, lowercase)


def test_every_letter():
    letters = [chr(c) for c in range(0x110000) if in_all_versions(chr(c))]
    texts = [f"ab{letter}cd {letter}{letter} {letter}" for letter in letters]
    found = words_of([text.encode() for text in texts])
    wrong = {
        letter: words
        for letter, text, words in zip(letters, texts, found, strict=True)
        if words != python_words(text.encode())
    }
    assert not wrong


LOCALE_PROGRAM = """
import sys
from tests.features.test_words import LOCALE_TEXTS, words_of
sys.stdout.buffer.write(repr(words_of(LOCALE_TEXTS)).encode())
"""
LOCALE_TEXTS = [*HARD, "TITLE TITLE\u0307 ÌÍĨ Į\u0307J\u0301I\u0300 İİ DIYARBAKIR".encode()]


def test_the_locale_changes_nothing():
    """Turkish has letters of its own for the small I and the large i."""
    done = subprocess.run(
        [sys.executable, "-c", LOCALE_PROGRAM],
        env={**os.environ, "LC_ALL": "tr_TR.UTF-8", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=True,
    )
    expected = [python_words(text) for text in LOCALE_TEXTS]
    assert {"title", "diyarbakir"} <= set(expected[-1])
    assert done.stdout.decode() == repr(expected)


def test_keys_are_the_same_for_ever():
    # Saved models hold keys: were they to change with a version, every loaded vocabulary would be void.
    keys, _ = ngram_keys(keys_of(tf.constant(["music", "of", "finland"])), tf.constant([0, 3], tf.int64), 3)
    assert keys[0].numpy().tolist() == [5816868264704420601, -8885407578481910454, -7294891290143537816]
    assert keys[:, 0].numpy().tolist() == [5816868264704420601, 3069698059870436061, 3546583399841760854]
