"""Long texts in several windows: the same ones in bulk and in the graph, and one embedding from all of them."""

import numpy as np
import pytest
import tensorflow as tf

from tests.encoder.test_tokenizer import HARD, tokenizer
from tests.encoder.tiny import VOCABULARY, tiny_encoder
from xmc_tf.data import TokenStore
from xmc_tf.data.windows import WindowOptions
from xmc_tf.encoder import embeddings, encode_documents, tokenize_file
from xmc_tf.encoder.tokenizer import TruncationCounter

pytestmark = pytest.mark.full

KINDS = ("bert", "xlm-roberta")  # WordPiece, SentencePiece
LENGTH = 8


def whole(kind, text):
    """Return the ids of a text without special tokens."""
    own = tokenizer(kind)
    return own.tokenize([text], 10**6)[0][len(own.before) : -len(own.behind)].tolist()


def text_of(kind, count):
    """Return a text of exactly so many tokens."""
    words = "".join(" a" for _ in range(count)).strip()
    while len(whole(kind, words)) > count:
        words = words[2:]
    assert len(whole(kind, words)) == count
    return words


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("most", [2, 16])
def test_the_graph_makes_the_same_windows(kind, most):
    own, limit = tokenizer(kind), LENGTH - 2
    exact = [text_of(kind, count) for count in (0, limit, limit + 1, most * limit, most * limit + 1)]
    texts = [*exact, *HARD, "word " * 3, "one two three " * 70_000]
    windows, counts = own.windows(texts, WindowOptions(LENGTH, most))
    assert counts[:5].tolist() == [1, 1, 2, most, most]
    assert counts[-1] == most
    ids, mask, document = own.in_graph(LENGTH, most).windows(tf.constant(texts))
    assert document.numpy().tolist() == np.repeat(np.arange(len(texts)), counts).tolist()
    for row, seen, expected in zip(ids.numpy(), mask.numpy(), windows, strict=True):
        assert row[seen > 0].tolist() == expected.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_windows_are_the_text_in_pieces_each_with_its_special_tokens(kind):
    own, text = tokenizer(kind), "The first words, and many others: 1000 tokens? No. " * 2
    windows, _ = own.windows([text], WindowOptions(LENGTH, 100))
    assert all(one[: len(own.before)].tolist() == own.before for one in windows)
    assert all(one[-len(own.behind) :].tolist() == own.behind for one in windows)
    assert [token for one in windows for token in one[len(own.before) : -len(own.behind)]] == whole(kind, text)
    assert max(len(one) for one in windows) <= LENGTH


def test_a_reading_of_one_window_truncates():
    own = tokenizer("bert")
    windows, counts = own.windows(HARD, WindowOptions(LENGTH))
    assert counts.tolist() == [1] * len(HARD)
    assert [one.tolist() for one in windows] == [one.tolist() for one in own.tokenize(HARD, LENGTH)]


def test_windows_and_what_follows_the_last_are_counted_and_logged(caplog, tmp_path):
    texts = ["a b", text_of("bert", 6), text_of("bert", 7), text_of("bert", 18), text_of("bert", 19), "a " * 500_000]
    with caplog.at_level("INFO", logger="xmc_tf"):
        store = tokenize_file(texts, tokenizer("bert"), tmp_path / "tokens", max_length=LENGTH, max_windows=3)
    assert np.diff(store.splits).tolist() == [1, 1, 2, 3, 3, 3]
    longer, truncated = [record.getMessage() for record in caplog.records]
    assert longer == "longer than 8 tokens: 66.7 % of 6 documents, read in several windows each; 13 windows in all"
    assert truncated.startswith("truncated to 3 windows of 8 tokens: 2 of 6 documents (33 %); 100 % of all tokens")
    assert truncated.endswith("(fix: raise --max-windows)")
    counted = TruncationCounter()
    tokenizer("bert").windows(texts[:4], WindowOptions(LENGTH, 3), counted)
    assert (counted.windows, counted.folded, counted.truncated, counted.tokens_kept) == (7, 2, 0, 2 + 6 + 7 + 18)


def test_stores_of_other_windows_are_made_again(tmp_path):
    own, texts = tokenizer("bert"), ["a b c d e f g h i j k l m n"]
    for most, count in ((1, 1), (2, 2), (16, 3), (16, 3), (1, 1)):
        store = tokenize_file(texts, own, tmp_path / "tokens", max_length=LENGTH, max_windows=most)
        assert (len(store), store.nr_documents) == (count, 1)


@pytest.mark.parametrize("combine", ["mean", "max"])
def test_embeddings_of_documents_are_combined(tmp_path, monkeypatch, combine):
    rng, encoder = np.random.default_rng(0), tiny_encoder("bert")
    counts = rng.integers(1, 6, 20)
    with TokenStore.create(tmp_path / "tokens") as writer:
        writer.write([rng.integers(10, VOCABULARY, rng.integers(1, 12)) for _ in range(counts.sum())], counts)
    store = TokenStore.open(tmp_path / "tokens")
    of_windows = [encoder(*store.padded([row], pad_id=0)).numpy()[0] for row in range(len(store))]
    parts = np.split(np.array(of_windows), store.splits[1:-1])
    expected = np.array([part.mean(axis=0) if combine == "mean" else part.max(axis=0) for part in parts])
    for at_once in (1, 7, 1000):  # documents are combined in groups of bounded size
        monkeypatch.setattr(embeddings, "WINDOWS_AT_ONCE", at_once)
        found = encode_documents(encoder, store, batch_tokens=50, combine=combine)
        np.testing.assert_allclose(found, expected, atol=1e-5)
    some = np.array([17, 3, 3, 8])
    np.testing.assert_allclose(encode_documents(encoder, store, some, combine=combine), expected[some], atol=1e-5)
    assert encode_documents(encoder, store, [], combine=combine).shape == (0, 16)
