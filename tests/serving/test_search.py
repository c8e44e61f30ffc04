"""The search in the graph finds what the rankers' own finds, in every form that weights can lie in."""

import numpy as np
import pytest
import tensorflow as tf

from tests.serving.cases import assert_same, random_model, random_sparse
from xmc_tf.data import Features
from xmc_tf.params import POST_PROCESSORS
from xmc_tf.serving import arrangement
from xmc_tf.serving.arrangement import arrange
from xmc_tf.serving.query import Query
from xmc_tf.serving.search import NOTHING, LevelSearch, TreeSearch, rank, unrank


def graph_of(model, *, beam=4, k=6, form=None, precision="fp32"):
    """Return the search as a function of features, with ordinary variables.

    Every call with ``traced`` makes a graph of its own, which takes longer than the search.
    """
    arriving, levels, beams = model.levels[0].clusters.shape[1], [], []
    for level in model.levels:
        arranged = arrange(
            level.weights, level.clusters, level.bias, nr_sparse=model.nr_sparse, nr_dense=model.nr_dense,
            beam=arriving, form=form, precision=precision,
        )  # fmt: skip
        variables = {name: tf.Variable(array, trainable=False) for name, array in arranged.arrays.items()}
        levels.append(LevelSearch(arranged, variables, level.pred_params.post_processor))
        beams.append(min(beam, arranged.nr_nodes))
        arriving = min(beams[-1], arriving * arranged.most_children)
    search = TreeSearch(levels, model.levels[0].clusters.shape[1], beams, model.levels[0].pred_params.post_processor)

    def run(X, traced=True):
        dense = None if X.dense is None else tf.constant(X.dense)
        if X.sparse is None:
            query = Query.from_padded(tf.zeros([X.nr_rows, 0], tf.int32), tf.zeros([X.nr_rows, 0]), dense)
        else:
            m = X.sparse
            query = Query.from_rows(tf.constant(m.indptr, tf.int64), tf.constant(m.indices), tf.constant(m.data), dense)
        return tf.function(lambda: search(query, k), autograph=False)() if traced else search(query, k)

    return run


def best(graph, X, k=6, traced=True):
    """Return labels and scores, padded with -1."""
    beam = graph(X, traced)[-1]
    lacking = k - beam.nodes.shape[1]
    return np.pad(beam.nodes, [(0, 0), (0, lacking)], constant_values=-1), np.pad(beam.scores, [(0, 0), (0, lacking)])


@pytest.mark.parametrize(
    ("post", "form"), [*((post, None) for post in POST_PROCESSORS), ("l3-hinge", "blocks"), ("log-sigmoid", "pairs")]
)
def test_every_post_processor_and_every_form(post, form):
    draw = np.random.default_rng(3)
    model = random_model(draw, post=post)
    X = Features(random_sparse(draw, 40, 40))
    found = best(graph_of(model, form=form), X, traced=form is not None)
    assert_same(*found, model.predict(X, threads=1), atol=1e-5)


@pytest.mark.parametrize(
    ("case", "beam"),
    [
        ({}, 1),
        ({"sizes": (70,)}, 4),  # no tree
        ({"sizes": (2, 4, 8, 16, 70)}, 3),
        ({"sizes": (70, 90)}, 4),
        ({"bias": 0.0}, 4),
        ({"density": 0.0}, 4),  # all scores tie
        ({"density": 0.02}, 4),
        ({"density": 1.0}, 4),
        ({"shuffled": False}, 4),
        ({"nr_dense": 7}, 4),
        ({"nr_dense": 7, "sizes": (3, 12, 300)}, 4),  # few children of many nodes: their rows alone
        ({"nr_sparse": 0, "nr_dense": 7}, 4),
        ({"k": 70}, 2),  # more labels wanted than the beam leads to
    ],
)
def test_every_kind_of_model(case, beam):
    draw = np.random.default_rng(5)
    k = case.get("k", 6)
    model = random_model(draw, beam=beam, **case)
    sparse = random_sparse(draw, 30, model.nr_sparse) if model.nr_sparse else None
    dense = draw.standard_normal((30, model.nr_dense)).astype(np.float32) if model.nr_dense else None
    graph = graph_of(model, beam=beam, k=k)
    for rows in (slice(2, 3), slice(0, 30), slice(0, 0)):
        X = Features(sparse, dense).rows(rows)
        assert_same(*best(graph, X, k, traced=rows.stop == 30), model.predict(X, threads=1), atol=1e-5)


def test_nodes_outside_the_tree_are_never_found():
    draw = np.random.default_rng(7)
    model = random_model(draw)
    clusters = model.levels[-1].clusters.tolil()
    clusters[::3] = 0  # as pruning leaves it
    level = model.levels[-1]
    model.levels[-1] = type(level)(level.weights, clusters.tocsc(), level.bias, level.pred_params)
    X = Features(random_sparse(draw, 30, 40))
    labels, scores = best(graph_of(model), X, traced=False)
    assert_same(labels, scores, model.predict(X, threads=1), atol=1e-5)
    assert set(labels[labels >= 0] % 3) == {1, 2}


@pytest.mark.parametrize(("precision", "tolerance"), [("fp16", 2e-3), ("int8", 5e-2)])
@pytest.mark.parametrize("form", ["blocks", "pairs"])
def test_smaller_weights_change_scores_a_little(precision, tolerance, form):
    draw = np.random.default_rng(11)
    model = random_model(draw, nr_dense=5, post="sigmoid", beam=100, k=70)
    X = Features(random_sparse(draw, 30, 40), draw.standard_normal((30, 5)).astype(np.float32))
    exact = model.predict(X, threads=1, beam_size=100).toarray()
    labels, scores = best(graph_of(model, beam=100, k=70, form=form, precision=precision), X, 70, traced=False)
    near = np.zeros_like(exact)
    np.put_along_axis(near, labels, scores, axis=1)
    assert 0 < np.abs(near - exact).max() < tolerance


def test_the_number_of_a_score_and_a_node_orders_as_the_search_does():
    values = np.array([np.inf, 3.5, 1.0, 1e-37, 0.0, -0.0, -1e-37, -1.0, -3e38, -np.inf], np.float32)
    scores, nodes = (part.ravel() for part in np.meshgrid(values, [0, 1, 5, 2**31 - 1], indexing="ij"))
    keys = rank(tf.constant(scores), tf.constant(nodes, tf.int32), tf.ones(scores.shape, tf.bool)).numpy()
    for a in range(len(keys)):
        for b in range(len(keys)):
            better = scores[a] > scores[b] or (scores[a] == scores[b] and nodes[a] < nodes[b])
            assert (keys[a] > keys[b]) == better
    assert keys.min() > NOTHING
    back, which = unrank(tf.constant(keys))
    np.testing.assert_array_equal(back, scores)
    np.testing.assert_array_equal(which, nodes)
    assert [one.numpy().tolist() for one in unrank(tf.constant([NOTHING], tf.int64))] == [[0.0], [-1]]


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("batch", [1, 30])
def test_large_groups_are_arranged_in_parts_to_the_same(monkeypatch, batch, precision):
    model = random_model(np.random.default_rng(13), nr_dense=3)
    for level in model.levels:
        for beam in (2, 100):  # groups of siblings; the level as one
            arguments = {"nr_sparse": 40, "nr_dense": 3, "beam": beam, "precision": precision}
            monkeypatch.undo()
            expected = arrange(level.weights, level.clusters, level.bias, **arguments).arrays
            monkeypatch.setattr(arrangement, "BATCH", batch)
            found = arrange(level.weights, level.clusters, level.bias, **arguments).arrays
            assert found.keys() == expected.keys()
            for name, array in expected.items():
                np.testing.assert_array_equal(found[name], array, name)
