"""Initial rows of a head: each method equals its plain definition."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from tests.matcher.tiny import DIM, TREE, documents
from xmc_tf.collective.strategy import CollectiveStrategy
from xmc_tf.data import as_features
from xmc_tf.matcher.bootstrap import bootstrap
from xmc_tf.matcher.candidates import parents_matched
from xmc_tf.matcher.head import LabelHead
from xmc_tf.matcher.heads import Scaling
from xmc_tf.matcher.tasks import levels_of
from xmc_tf.params import LinearChainParams, LinearLevelParams, MatcherParams, RankerParams
from xmc_tf.rankers.fit import train_rankers
from xmc_tf.ranks.solo import Solo

N = 80


@pytest.fixture(scope="module")
def problem():
    _, Y = documents(N, seed=4)
    tasks = levels_of(TREE, Y, max_match_clusters=12, weights=True)
    rng = np.random.default_rng(0)
    vectors = (Y @ rng.normal(size=(Y.shape[1], DIM)) + 0.1 * rng.normal(size=(N, DIM))).astype(np.float32)
    return Y, tasks, vectors


def head_of(task, **options):
    strategy = CollectiveStrategy(Solo(), seed=2)
    return LabelHead(strategy, f"head/level_{task.level}", task.nr_nodes, DIM, task.splits, **options)


def test_pecos_has_two_names_for_a_weighted_bootstrap():
    for method, weighted in (("linear", "weighted-linear"), ("weighted-linear", "weighted-linear"), ("centroid",) * 2):
        params = MatcherParams(bootstrap_method=method, cost_sensitive_ranker=True)
        assert (params.bootstrap, MatcherParams(bootstrap_method=method).bootstrap) == (weighted, method)


@pytest.mark.parametrize("method", ["linear", "weighted-linear"])
def test_linear_is_the_ranker_over_the_whole_tree(problem, method):
    """Every level's head equals that level of rankers trained with the same negatives on the same vectors."""
    Y, tasks, vectors = problem
    level = LinearLevelParams(threshold=0.0, Cp=100.0, Cn=100.0)
    weighted = method == "weighted-linear"
    params = RankerParams(rel_mode="induce" if weighted else "disable", hlm_args=LinearChainParams("tfn", level))
    whole = train_rankers(as_features(vectors), Y, TREE.to_chain(), params=params, seed=5)
    for number, task in enumerate(tasks):
        matched = parents_matched(task, "tfn", tasks[number - 1].targets) if number else None
        head = head_of(task)
        bootstrap(head, method, task=task, matched=matched, vectors=vectors, seed=5)
        np.testing.assert_allclose(head.local(), whole.levels[number].weights.T.toarray(), rtol=1e-5, atol=1e-6)


def test_the_linear_head_scores_normalised_vectors(problem):
    _, tasks, vectors = problem
    head = head_of(tasks[0], scaling=Scaling(True, 3.0))
    bootstrap(head, "linear", task=tasks[0], vectors=vectors)
    unit = 3.0 * vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    plain = head_of(tasks[0])
    bootstrap(plain, "linear", task=tasks[0], vectors=unit)
    np.testing.assert_allclose(head.local(), plain.local(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("loss", ["cross-entropy", "squared-hinge"])
def test_centroids(problem, loss, normalize):
    _, tasks, vectors = problem
    task = tasks[1]
    matched = parents_matched(task, "tfn", tasks[0].targets)
    head = head_of(task, scaling=Scaling(normalize, 2.0))
    bootstrap(head, "centroid", task=task, matched=matched, vectors=vectors, loss_function=loss)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    seen = 2.0 * (unit if normalize else vectors)
    for node in range(task.nr_nodes):
        parent = int(np.searchsorted(task.splits, node, side="right") - 1)
        of_parent = matched[:, [parent]].toarray().ravel() > 0
        of_node = task.targets[:, [node]].toarray().ravel() > 0
        row = head.local()[node]
        direction = unit[of_node].mean(axis=0)
        length = np.linalg.norm(seen[of_parent], axis=1).mean()
        np.testing.assert_allclose(row[:-1], direction * 2.0 / length, rtol=1e-4)
        share = (of_node.sum() + 0.5) / (of_parent.sum() + 1)
        wanted = np.log(share / (1 - share)) if loss == "cross-entropy" else 2 * share - 1
        assert seen[of_parent].mean(axis=0) @ row[:-1] + row[-1] == pytest.approx(wanted, abs=1e-4)


def test_a_node_without_documents_has_a_finite_row(problem):
    Y, _, vectors = problem
    emptied = Y.toarray()
    emptied[:, :2] = 0
    tasks = levels_of(TREE, csr_matrix(emptied), max_match_clusters=12)
    for method in ("centroid", "linear"):
        head = head_of(tasks[2])
        matched = parents_matched(tasks[2], "tfn", tasks[1].targets)
        bootstrap(head, method, task=tasks[2], matched=matched, vectors=vectors)
        assert np.isfinite(head.local()).all()


def test_inherit(problem):
    _, tasks, _ = problem
    parent = head_of(tasks[0], initial=np.arange(3 * (DIM + 1), dtype=np.float32).reshape(3, DIM + 1))
    head = head_of(tasks[1])
    bootstrap(head, "inherit", task=tasks[1], parent_head=parent)
    np.testing.assert_array_equal(head.local(), parent.local()[[0, 0, 1, 1, 2, 2]])


def test_at_random(problem):
    _, tasks, _ = problem
    for method in ("no-bootstrap", "inherit"):  # at the top there is nothing to inherit
        head = LabelHead(CollectiveStrategy(Solo()), "head/level_1", 3000, DIM)
        bootstrap(head, method, task=tasks[0], seed=3)
        rows = head.local()
        assert rows[:, :-1].std() == pytest.approx(0.02, rel=0.05)
        assert not rows[:, -1].any()
