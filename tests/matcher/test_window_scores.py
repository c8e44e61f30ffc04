"""Scores of long documents by the label head: the largest of the windows, in search, validation and negatives."""

import dataclasses

import numpy as np
import pytest
from scipy.special import logsumexp

from tests.matcher.test_matcher import PARAMS, PRED
from tests.matcher.tiny import TREE, TinyEncoder, documents, encode
from xmc_tf.collective.strategy import CollectiveStrategy
from xmc_tf.data import TokenStore
from xmc_tf.data.windows import WindowEmbeddings
from xmc_tf.matcher import matcher as module
from xmc_tf.matcher.head import LabelHead
from xmc_tf.matcher.matcher import LevelByLevel, Matcher
from xmc_tf.matcher.tasks import MatcherData, MatcherSettings, Validation, levels_of
from xmc_tf.ranks.solo import Solo

DOCUMENTS = 40


def folded(folder, seed):
    """Return a store of documents of one to four different windows, and the documents' labels."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 5, DOCUMENTS)
    windows, of_windows = documents(int(counts.sum()), seed)
    with TokenStore.create(folder) as writer:
        writer.write(windows, counts)
    store = TokenStore.open(folder)
    return store, of_windows[store.splits[:-1]]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Return long training documents, with others to validate on."""
    folder = tmp_path_factory.mktemp("folded")
    store, Y = folded(folder / "train", 1)
    return MatcherData(store, Y, TREE, pad_id=0, validation=Validation(*folded(folder / "held_out", 2)))


@pytest.fixture(scope="module")
def trained(inputs, tmp_path_factory):
    """Return a matcher of all levels, whose negatives are those that the level above predicts."""
    params = dataclasses.replace(PARAMS, negative_sampling="man", bootstrap_method="centroid", max_steps=8)
    settings = MatcherSettings(params, PRED, seed=3)
    strategy = CollectiveStrategy(Solo(), seed=1)
    return Matcher.train(strategy, TinyEncoder(), inputs, settings, folder=tmp_path_factory.mktemp("run"))


def largest_scores(matcher, level, store):
    """Return the scores of all nodes of a level, without its parents: documents × nodes.

    The windows of a document have the same log-sum-exp, the mean of theirs.
    """
    rows = matcher.heads[level].local()
    vectors = encode(matcher.encoder, store, np.arange(len(store)))
    raw = vectors @ rows[:, :-1].T + rows[:, -1]
    totals = logsumexp(raw, axis=1, keepdims=True)
    largest = WindowEmbeddings(raw - totals, store.splits).of_documents("max")
    return largest + WindowEmbeddings(totals, store.splits).of_documents("mean")


def test_a_node_has_the_largest_score_of_all_windows(inputs, trained):
    store = inputs.store
    vectors = encode(trained.encoder, store, np.arange(len(store)))
    found = trained.predict(vectors, only_topk=99, beam_size=99, windows=store.splits)
    np.testing.assert_allclose(found.toarray(), largest_scores(trained, -1, store), rtol=1e-4, atol=1e-5)
    few = trained.predict(vectors, only_topk=3, beam_size=99, windows=store.splits)
    assert few.indices.reshape(-1, 3).tolist() == found.indices.reshape(DOCUMENTS, -1)[:, :3].tolist()


def test_windows_share_the_beam_of_their_document(inputs, trained):
    store = inputs.store
    vectors = encode(trained.encoder, store, np.arange(len(store)))
    found = trained.predict(vectors, only_topk=99, beam_size=1, windows=store.splits)
    assert trained.nr_nodes // 6 * DOCUMENTS == found.nnz  # the children of one parent
    above = largest_scores(trained, 0, store).argmax(axis=1)
    parent = np.searchsorted(trained.splits[1], np.searchsorted(trained.splits[2], found.indices, "right") - 1, "right")
    assert (parent - 1).tolist() == np.repeat(above, np.diff(found.indptr)).tolist()


@pytest.mark.parametrize("at_once", [3, 1 << 16])
def test_validation_and_negatives_use_the_scores_of_windows(inputs, trained, tmp_path, monkeypatch, at_once):
    monkeypatch.setattr(module, "WINDOWS_AT_ONCE", at_once)
    levels = LevelByLevel(trained.strategy, trained.encoder, inputs, MatcherSettings(PARAMS), tmp_path)
    task = levels_of(TREE, inputs.Y, max_match_clusters=12)[0]
    head: LabelHead = trained.heads[0]
    pred = dataclasses.replace(PRED, only_topk=2, post_processor="noop")
    for found, store in (
        (levels._predict_all(head, task, None, pred), inputs.store),
        (levels._predict_held_out(head, task, None, pred), inputs.validation.store),
    ):
        expected = largest_scores(trained, 0, store)
        best = np.argsort(-expected, axis=1)[:, :2]
        assert found.indices.reshape(-1, 2).tolist() == best.tolist()
        np.testing.assert_allclose(found.data.reshape(-1, 2), np.take_along_axis(expected, best, 1), rtol=1e-4)


def test_each_level_is_validated(trained):
    for result in trained.results:
        assert len(result.validations) == 2
        assert all(0 < measures["P@1"] <= 100 for _, measures in result.validations)


def test_a_rank_may_have_no_documents(inputs, trained):
    nothing = np.zeros((0, trained.head.dim), np.float32)
    assert trained.predict(nothing, windows=np.array([0])).shape == (0, trained.nr_nodes)
    store = TokenStore(
        np.zeros(0, np.int32), np.zeros(0, np.int32), {"fingerprint": "", "about": {}}, inputs.store.folder
    )
    validation = Validation(store, inputs.Y[:0])
    data = dataclasses.replace(inputs, validation=validation)
    levels = LevelByLevel(trained.strategy, trained.encoder, data, MatcherSettings(PARAMS), inputs.store.folder)
    task = levels_of(TREE, validation.Y, max_match_clusters=12)[0]
    assert levels._predict_held_out(trained.heads[0], task, None, PRED).shape == (0, 3)
