"""The graph in a SavedModel: loaded where only TensorFlow is, it gives what `transform` gives."""

import numpy as np
import pytest
import tensorflow as tf

from tests.features.texts import HARD, random_corpus
from tests.plain_tensorflow import ask, foreign_operations, nodes
from xmc_tf.features import Tfidf
from xmc_tf.params import TfidfParams


@pytest.fixture(scope="module")
def texts() -> list[bytes]:
    megabyte = (b"w1 w2 " + "Ö7É w3, ".encode()) * 80_000
    unbroken = b"x" * (1 << 20)
    gaps = b"w1" + b"\x00 \xff" * 400_000 + b"w2"
    assert len(megabyte) >= 1 << 20
    return [*HARD, megabyte, *(text.encode() for text in random_corpus(40, seed=8)), unbroken, gaps, b""]


@pytest.fixture(scope="module")
def tfidf(texts) -> Tfidf:
    return Tfidf.fit(texts + texts[:1] + HARD, TfidfParams(ngram_max=3))


@pytest.fixture(scope="module")
def served(tfidf, tmp_path_factory):
    """Return the folder of the graph as a SavedModel."""
    folder = tmp_path_factory.mktemp("served") / "model"
    tf.saved_model.save(tfidf.graph(), str(folder))
    return folder


def test_the_saved_model_gives_what_transform_gives(tfidf, texts, served):
    rows = tfidf.transform(texts)
    row_splits, ids, weights = ask(served, ".__call__", text=texts).values()
    assert np.array_equal(row_splits, rows.indptr)
    assert np.array_equal(ids, rows.indices)
    assert np.array_equal(weights, rows.data)
    assert row_splits.dtype == np.int64
    assert ids.dtype == np.int32
    row_splits, ids, _ = ask(served, ".__call__", text=np.zeros(0, "S1")).values()
    assert row_splits.tolist() == [0]
    assert ids.tolist() == []
    # All kinds of hard text have features, or the comparison would say little.
    assert np.diff(rows.indptr).astype(bool).sum() >= len(texts) - 5


def test_padded_rows_hold_the_same(tfidf, texts, served):
    rows = tfidf.transform(texts)
    padded_ids, padded_weights = ask(served, ".padded", text=texts).values()
    longest = np.diff(rows.indptr).max()
    assert padded_ids.shape == padded_weights.shape == (len(texts), longest)
    for i, row in enumerate(rows):
        assert np.array_equal(padded_ids[i, : row.nnz], row.indices)
        assert np.array_equal(padded_weights[i, : row.nnz], row.data)
        assert not padded_ids[i, row.nnz :].any()
        assert not padded_weights[i, row.nnz :].any()


def test_the_graph_needs_core_operations_only(served):
    assert foreign_operations(served) == set()


def test_the_vocabulary_is_in_variables(served, tfidf):
    assert max(node.attr["value"].tensor.ByteSize() for node in nodes(served) if node.op == "Const") < 1000
    variables = sum(path.stat().st_size for path in (served / "variables").iterdir())
    assert variables > 16 * tfidf.nr_features
