"""Ranks and best items against a sort of all scores, with ties; metrics calculated by hand."""

import numpy as np
import pytest
import tensorflow as tf

from xmc_tf.collective.tables.table import make_table
from xmc_tf.ranks.solo import Solo
from xmc_tf.sequences.model import ranking
from xmc_tf.sequences.model.ranking import best_items, ranking_metrics, ranks_of


@pytest.fixture(params=[1 << 6, 1 << 9, 1 << 20], autouse=True)
def chunks(request, monkeypatch):
    monkeypatch.setattr(ranking, "CHUNK_BYTES", request.param)


@pytest.fixture
def given():
    """Rows of few different values, so that many scores are equal."""
    draw = np.random.default_rng(0)
    table = make_table("items", 29, 2, initializer=draw.integers(-1, 2, (29, 2)).astype(np.float32))
    vectors = draw.integers(-2, 3, (29, 2)).astype(np.float32)
    return table, vectors, np.arange(29)


def in_order(table, vectors):
    """Return all items, best first, the smaller number first among equals."""
    return np.argsort(-(vectors @ table.variable.numpy().T), axis=1, kind="stable")


def test_ranks_with_ties(given):
    table, vectors, targets = given
    found = ranks_of(table, tf.constant(vectors), tf.constant(targets))
    expected = [1 + row.tolist().index(target) for row, target in zip(in_order(table, vectors), targets, strict=True)]
    assert found.numpy().tolist() == expected


@pytest.mark.parametrize("k", [1, 5, 40])
def test_best_items_with_ties(given, k):
    table, vectors, _ = given
    best = best_items(table, tf.constant(vectors), k)
    expected = in_order(table, vectors)[:, :k]
    assert np.array_equal(best.items, expected)
    assert np.array_equal(best.scores, np.take_along_axis(vectors @ table.variable.numpy().T, expected, axis=1))


def test_metrics():
    found = ranking_metrics([np.array([1, 3]), np.array([11, 100])], Solo())
    assert found["Recall@10"] == 0.5
    assert found["Recall@20"] == 0.75
    assert found["NDCG@10"] == pytest.approx((1 + 1 / 2) / 4)
    assert found["MRR"] == pytest.approx((1 + 1 / 3 + 1 / 11 + 1 / 100) / 4)
