"""Several trees: the union of their labels, and the mean of their scores."""

import numpy as np
import pytest

from tests.linear.cases import features, label_matrix
from tests.refusals import refused
from xmc_tf.params import HierarchicalKMeansParams
from xmc_tf.rankers.ensemble import TreeEnsemble
from xmc_tf.rankers.fit import train_rankers
from xmc_tf.tree.kmeans import build_tree
from xmc_tf.tree.label_embeddings import label_embedding

DOCUMENTS, LABELS = 60, 40


@pytest.fixture(scope="module")
def data():
    X, Y = features("sparse", DOCUMENTS), label_matrix(DOCUMENTS, LABELS)
    embedding = label_embedding("pifa", X, Y)
    models = []
    for seed in (1, 2, 3):
        params = HierarchicalKMeansParams(nr_splits=4, max_leaf_size=4 * seed, seed=seed, threads=1)
        models.append(train_rankers(X, Y, build_tree(embedding, params).to_chain(), threads=1))
    return X, models


def mean_of(predictions):
    return sum(one.toarray() for one in predictions) / np.float32(len(predictions))


def test_the_scores_are_the_mean_of_the_trees_scores(data):
    X, models = data
    expected = mean_of([model.predict(X, beam_size=3, only_topk=20) for model in models])
    found = TreeEnsemble(models).predict(X, beam_size=3, only_topk=LABELS)
    alone = mean_of([model.predict(X, beam_size=3, only_topk=LABELS) for model in models])
    np.testing.assert_allclose(found.toarray(), alone, atol=1e-7)
    few = TreeEnsemble(models).predict(X, beam_size=3, only_topk=5)
    for row in range(DOCUMENTS):
        best = np.lexsort((np.arange(LABELS), -expected[row]))[:5]
        assert few[row].indices.tolist() == best.tolist()
        np.testing.assert_allclose(few[row].data, expected[row][best], atol=1e-7)


@pytest.mark.parametrize("post_processor", ["noop", "log-l3-hinge"])
def test_scores_that_may_be_negative_are_computed_for_labels_outside_a_beam(data, post_processor):
    X, models = data
    ensemble = TreeEnsemble(models)
    found = ensemble.predict(X, beam_size=1, only_topk=8, post_processor=post_processor)
    selected = found.copy()
    selected.sort_indices()
    exact = ensemble.predict_selected(X, selected, post_processor=post_processor)
    np.testing.assert_allclose(selected.toarray(), exact.toarray(), rtol=1e-5)


def test_threads_and_batches_do_not_change_the_result(data):
    X, models = data
    ensemble = TreeEnsemble(models)
    many = ensemble.predict(X.rows(np.tile(np.arange(DOCUMENTS), 30)), threads=3)
    one = ensemble.predict(X, threads=1)
    for row in range(DOCUMENTS):
        single = ensemble.predict(X.rows(slice(row, row + 1)), threads=1)
        for other in (many[DOCUMENTS + row], one[row]):
            assert np.array_equal(other.indices, single.indices)
            assert np.array_equal(other.data, single.data)


def test_predictions_can_be_restricted_to_some_labels(data):
    X, models = data
    ensemble = TreeEnsemble(models)
    whole = ensemble.predict(X, beam_size=LABELS, only_topk=LABELS, first=LABELS).toarray()
    ensemble.set_output_constraint(iter([3, 7, 11]))
    some = ensemble.predict(X, beam_size=LABELS, only_topk=LABELS, first=LABELS).toarray()
    ensemble.set_output_constraint(None)
    assert set(np.flatnonzero(some.any(axis=0))) <= {3, 7, 11}
    np.testing.assert_allclose(some[:, [3, 7, 11]], whole[:, [3, 7, 11]], atol=1e-7)
    again = ensemble.predict(X, beam_size=LABELS, only_topk=LABELS, first=LABELS)
    assert np.array_equal(again.toarray(), whole)


def test_trees_of_other_labels_are_refused(data):
    _, models = data
    other = train_rankers(features("sparse", DOCUMENTS), label_matrix(DOCUMENTS, LABELS - 1), threads=1)
    refused("the rankers of tree 3 do not fit", TreeEnsemble, [*models[:2], other])
