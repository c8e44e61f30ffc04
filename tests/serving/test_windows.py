"""Embeddings of long texts in the served graph: the same windows as in Python, from text and from token ids."""

import numpy as np
import pytest
import tensorflow as tf

from tests.pipeline.corpus import TOPICS, run_train, texts_and_labels, write_encoder
from tests.serving.cases import assert_same
from xmc_tf.data import TokenStore
from xmc_tf.data.windows import WindowOptions
from xmc_tf.encoder import Encoder, TextTokenizer, encode_documents
from xmc_tf.models.xtransformer import XTransformer
from xmc_tf.serving import encoder_embeddings, label_head
from xmc_tf.serving.encoder_embeddings import EncoderEmbeddings
from xmc_tf.serving.local import LocalModel

pytestmark = pytest.mark.full

LENGTH, MOST = 10, 4
LIMIT = LENGTH - 2
# Empty, short, exactly one window, one token more, as many as are read, more, and a megabyte.
COUNTS = (0, 3, LIMIT, LIMIT + 1, MOST * LIMIT, MOST * LIMIT + 1, 150_000)
READINGS = [WindowOptions(LENGTH), WindowOptions(LENGTH, MOST, "mean"), WindowOptions(LENGTH, MOST, "max")]


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """Return a tiny encoder and its tokenizer."""
    folder = tmp_path_factory.mktemp("encoder") / "encoder"
    write_encoder(folder)
    return Encoder.load(folder), TextTokenizer.load(folder)


@pytest.fixture(scope="module")
def texts():
    """Return texts of these numbers of tokens, in an order that mixes short and long ones."""
    rng = np.random.default_rng(0)
    made = [" ".join(rng.choice(TOPICS, count)) for count in COUNTS]
    return [made[at] for at in rng.permutation(len(made))]


def expected_of(parts, texts, reading, tmp_path):
    """Return the embeddings that prediction computes, of length 1, and the windows."""
    encoder, tokenizer = parts
    windows, counts = tokenizer.windows(texts, reading)
    with TokenStore.create(tmp_path / "tokens") as writer:
        writer.write(windows, counts)
    vectors = encode_documents(encoder, TokenStore.open(tmp_path / "tokens"), combine=reading.combine)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True), windows, counts


@pytest.mark.parametrize(
    ("reading", "at_once"), [(READINGS[0], 256), (READINGS[1], 3), (READINGS[2], 3), (READINGS[2], 256)]
)
def test_texts_have_the_embeddings_of_prediction(parts, texts, reading, at_once, tmp_path, monkeypatch):
    monkeypatch.setattr(encoder_embeddings, "WINDOWS_AT_ONCE", at_once)
    expected, _, counts = expected_of(parts, texts, reading, tmp_path)
    assert counts.max() == reading.max_windows
    served = EncoderEmbeddings(*parts, reading)
    np.testing.assert_allclose(served.of_text(tf.constant(texts)).documents, expected, atol=1e-5)
    for row, text in enumerate(texts):  # the other texts of a batch make no difference
        np.testing.assert_allclose(served.of_text(tf.constant([text])).documents, expected[row : row + 1], atol=1e-5)
    assert served.of_text(tf.constant([], tf.string)).documents.shape == (0, 16)


def side_by_side(windows, counts):
    """Return the token ids of documents with their mask, as callers send them."""
    ids, mask = np.zeros((2, len(counts), LENGTH * int(counts.max())), np.int32)
    for row, end in enumerate(np.cumsum(counts)):
        for number, window in enumerate(windows[end - counts[row] : end]):
            ids[row, number * LENGTH :][: len(window)], mask[row, number * LENGTH :][: len(window)] = window, 1
    return ids, mask


@pytest.mark.parametrize("reading", READINGS, ids=lambda reading: reading.long_texts)
def test_callers_may_send_the_windows_side_by_side(parts, texts, reading, tmp_path):
    expected, windows, counts = expected_of(parts, texts, reading, tmp_path)
    served = EncoderEmbeddings(*parts, reading)
    ids, mask = side_by_side(windows, counts)
    found = served.of_inputs({"token_ids": tf.constant(ids), "token_mask": tf.constant(mask)}).documents
    np.testing.assert_allclose(found, expected, atol=1e-5)
    short = counts == 1
    narrow = {"token_ids": tf.constant(ids[short, :LENGTH]), "token_mask": tf.constant(mask[short, :LENGTH])}
    np.testing.assert_allclose(served.of_inputs(narrow).documents, expected[short], atol=1e-5)
    wider = tf.zeros([1, LENGTH * reading.max_windows + 1], tf.int32)
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"at most {LENGTH * reading.max_windows} columns"):
        served.of_inputs({"token_ids": wider, "token_mask": wider})
    nothing = tf.zeros([0, LENGTH], tf.int32)
    assert served.of_inputs({"token_ids": nothing, "token_mask": nothing}).documents.shape == (0, 16)


def test_a_whole_model_answers_as_prediction_does(encoder_corpus, texts, tmp_path, monkeypatch):
    """It answers by the mean of rankers and label head, and reads long texts in windows."""
    corpus = encoder_corpus
    flags = ("--max-steps", "6", "--save-steps", "100", "--labels", corpus / "labels.txt", "--truncate-length", LENGTH)
    flags += ("--long-texts", "max", "--max-windows", MOST, "--label-names", "false")
    tuned = run_train(corpus, corpus / "short-windows", *map(str, flags))
    monkeypatch.setattr(label_head, "WINDOWS_AT_ONCE", 2)
    assert tuned.metadata.ensemble_method == "root_average"
    every = [*texts, *list(texts_and_labels(corpus, "tst")[0].lines())[:30]]
    expected = tuned.predict(every, only_topk=5, beam_size=8, threads=1)
    tuned.export(tmp_path / "1", beam_size=8, only_topk=5)
    found = LocalModel(tmp_path / "1").ask(every)
    assert_same(found["labels"], found["scores"], expected)
    # From token ids too.
    ids, mask = map(tf.constant, side_by_side(*tuned.tokenizer.windows(every, tuned.metadata.reading)))
    features, weights = tuned.tfidf.graph().padded(tf.constant(every))
    signature = tf.saved_model.load(str(tmp_path / "1")).signatures["features"]
    found = signature(token_ids=ids, token_mask=mask, feature_ids=features, feature_weights=weights)
    assert_same(found["labels"].numpy(), found["scores"].numpy(), expected)
    # What is compared depends on the windows.
    single = tuned.metadata.replace(max_windows=1)
    truncating = XTransformer(tuned.parts, single, tuned.names, where=tuned.folder)
    assert abs(truncating.predict(every, only_topk=5, beam_size=8, threads=1) - expected).max() > 0.01
