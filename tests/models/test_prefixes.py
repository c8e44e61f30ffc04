"""A shorter answer is the beginning of a longer one: rankers, probabilities, and the exported model."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from tests.label_names.cases import many
from tests.serving.cases import assert_export_answers
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.params import HierarchicalKMeansParams, XRLinearParams
from xmc_tf.params.effort import several_trees
from xmc_tf.rankers.ensemble import first_k, search_deeper

LABELS = 120


@pytest.fixture(scope="module")
def trained():
    """A model of two trees and more labels than candidates, and texts."""
    rng = np.random.default_rng(3)
    names, texts, Y = many(count=400)
    names = [*names, *(f"{names[at % 40]} {at} of others" for at in range(40, LABELS))]
    rows, columns = Y.nonzero()
    columns = columns + 40 * rng.integers(0, 3, len(columns))
    Y = csr_matrix((np.ones(len(rows), np.float32), (rows, columns)), shape=(len(texts), LABELS))
    params = XRLinearParams(tree=several_trees(HierarchicalKMeansParams(nr_splits=4, max_leaf_size=60), 2))
    model = XRLinear.train(texts, Y, names=names, params=params, threads=1)
    return model, texts[:30]


@settings(max_examples=5, deadline=None)
@given(st.integers(1, 110), st.integers(1, 110))
def test_the_shorter_answer_begins_the_longer_one(trained, one, other):
    model, texts = trained
    for options in ({}, {"scores": "ranker"}):
        short, long = (model.predict(texts, only_topk=k, beam_size=20, **options) for k in sorted((one, other)))
        cut = first_k(long, min(one, other))
        assert np.array_equal(cut.indptr, short.indptr)
        assert np.array_equal(cut.indices, short.indices)
        assert np.array_equal(cut.data, short.data)


def test_long_answers_have_all_labels_once_in_descending_order(trained):
    model, texts = trained
    found = model.predict(texts, only_topk=100, beam_size=20)
    assert np.diff(found.indptr).min() > 40
    for first, last in zip(found.indptr, found.indptr[1:], strict=False):
        assert len(set(found.indices[first:last].tolist())) == last - first
        assert (np.diff(found.data[first:last]) <= 0).all()


@pytest.mark.full
def test_the_exported_model_gives_the_same_long_answers(trained, tmp_path):
    model, texts = trained
    assert np.diff(assert_export_answers(model, tmp_path / "1", texts, only_topk=70).indptr).max() > 30


def test_a_deeper_search_changes_nothing_that_was_found():
    def search(size):
        """A search that finds other labels first the deeper it is."""
        order = np.roll(np.arange(2000), size)[:size]
        scores = np.linspace(1, 0.1, size, dtype=np.float32)
        out = csr_matrix((1, 2000), dtype=np.float32)
        out.data, out.indices, out.indptr = scores, order.astype(np.int32), np.array([0, size], np.int32)
        return out

    first, more = search_deeper(search, 5, 5), search_deeper(search, 100, 5)
    assert np.array_equal(more.indices[:5], first.indices)
    assert len(set(more.indices.tolist())) == 100
    assert more.data[5:].max() <= first.data.min()
