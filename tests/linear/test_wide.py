"""Problems too wide for one thread: the minimum of other solvers, the same bits for any number of threads."""

import numpy as np
import pytest
from scipy.sparse import csc_matrix

from tests.linear.cases import features, full_matrix, label_matrix, random_chain, ranker_params
from tests.linear.objectives import by_sklearn, least, objective
from xmc_tf.linear.fit import train_rankers
from xmc_tf.linear.levels import Levels
from xmc_tf.linear.tasks import Instances, cut_clusters, level_tasks

TIGHT = {"threshold": 0.0, "eps": 1e-5, "newton_eps": 1e-4}
SOLVERS = ["L2R_L2LOSS_SVC_DUAL", "L2R_L2LOSS_SVC_PRIMAL"]


@pytest.fixture
def everything_wide(monkeypatch):
    """Split every cluster into parts, four documents at a time."""
    monkeypatch.setattr("xmc_tf.linear.tasks.WIDE_ENTRIES", 0)
    monkeypatch.setattr("xmc_tf.linear.tasks.WIDE_DOCUMENTS_A_FEATURE", 0)
    monkeypatch.setattr("xmc_tf.linear.tasks.PART_ENTRIES", 100)
    monkeypatch.setattr("xmc_tf.linear.wide.parts.DEAL", 4)


def weights(X, Y, threads=2, chain=None, **more):
    relevance = more.pop("R", None)
    model = train_rankers(X, Y, chain, R=relevance, params=ranker_params(**{**TIGHT, **more}), threads=threads)
    return [level.weights for level in model.levels]


def with_bias(X, bias):
    full = full_matrix(X)
    return np.hstack([full, np.full((len(full), 1), bias)]) if bias > 0 else full


@pytest.mark.usefixtures("everything_wide")
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("kind", ["sparse", "private", "dense", "both"])
@pytest.mark.parametrize(("bias", "cp", "cn"), [(1.0, 1.0, 1.0), (-1.0, 4.0, 0.5)])
def test_objective_is_that_of_scikit_learn(solver, kind, bias, cp, cn):
    X, Y = features(kind, 60), label_matrix(60, 18)  # two groups of lanes
    R = Y.copy()
    R.data = np.random.default_rng(3).uniform(0.2, 3, R.nnz).astype(np.float32)
    (W,) = weights(X, Y, R=R, rel_mode="ranker-only", solver_type=solver, bias=bias, Cp=cp, Cn=cn)
    W, full = W.toarray().astype(np.float64), with_bias(X, bias)
    for label in (2, 5, 17):
        signs = np.where(Y[:, [label]].toarray().ravel() > 0, 1.0, -1.0)
        costs = np.where(signs > 0, cp * R[:, [label]].toarray().ravel(), cn)
        problem = (full, signs, costs, "squared hinge")
        assert objective(W[:, label], *problem) == pytest.approx(by_sklearn(*problem), rel=1e-3)


@pytest.mark.usefixtures("everything_wide")
def test_default_accuracy_is_that_of_the_serial_solver():
    X, Y = features("both", 200), label_matrix(200, 12)
    (W,) = weights(X, Y, eps=0.1)
    full = with_bias(X, 1.0)
    for label in range(12):
        signs = np.where(Y[:, [label]].toarray().ravel() > 0, 1.0, -1.0)
        problem = (full, signs, np.ones(200), "squared hinge")
        w = W[:, [label]].toarray().ravel().astype(np.float64)
        assert objective(w, *problem) <= 1.003 * least(*problem)


@pytest.mark.usefixtures("everything_wide")
@pytest.mark.parametrize("kind", ["private", "both"])
def test_the_result_does_not_depend_on_threads_or_other_tasks(kind):
    X, Y, chain = features(kind, 80), label_matrix(80, 40), random_chain(40, [3])
    one = weights(X, Y, 1, chain)
    for threads in (2, 3, 5):
        for expected, found in zip(one, weights(X, Y, threads, chain), strict=True):
            np.testing.assert_array_equal(expected.indices, found.indices)
            np.testing.assert_array_equal(expected.data.view(np.int32), found.data.view(np.int32))


@pytest.mark.parametrize("share", [0, 1])
def test_wide_clusters_get_the_weights_of_narrow_ones(share, monkeypatch):
    """Parts with tables of all features, and parts with small tables of their own."""
    X, Y, chain = features("private", 80), label_matrix(80, 20), random_chain(20, [4])
    narrow = weights(X, Y, 2, chain, max_iter=3000)
    wide = {"tasks.WIDE_ENTRIES": 0, "tasks.WIDE_DOCUMENTS_A_FEATURE": 0, "tasks.PART_ENTRIES": 100}
    for name, value in {**wide, "wide.parts.DEAL": 1, "wide.parts._MOST_FEATURES": share}.items():
        monkeypatch.setattr(f"xmc_tf.linear.{name}", value)
    for expected, found in zip(narrow, weights(X, Y, 2, chain), strict=True):
        assert not np.array_equal(expected.data, found.data)
        np.testing.assert_allclose(found.toarray(), expected.toarray(), atol=2e-3)


@pytest.mark.usefixtures("everything_wide")
def test_the_hinge_is_solved_without_a_team():
    X, Y = features("sparse", 30), label_matrix(30, 5)
    (W,) = weights(X, Y, solver_type="L2R_L1LOSS_SVC_DUAL", max_iter=3000)
    assert isinstance(W, csc_matrix)
    assert W.nnz > 0


def test_which_clusters_are_wide_depends_on_their_size_alone():
    entries = np.array([1e8, 2e8, 2.1e8, 6e8, 9e11]).astype(np.int64)
    many, few = np.full(5, 12.0), np.full(5, 11.9)
    assert cut_clusters(np.full(5, 16), entries, many).parts.tolist() == [0, 0, 4, 8, 64]
    assert not cut_clusters(np.full(5, 16), entries, few).parts.any()
    assert not cut_clusters(np.full(5, 16), entries, many, smooth=False).parts.any()


def test_documents_and_features_of_a_cluster_are_counted(monkeypatch):
    """The documents matched to it, and all features, including dense ones."""
    monkeypatch.setattr("xmc_tf.linear.tasks.WIDE_ENTRIES", 0)
    X, Y = features("both", 80), label_matrix(80, 20)
    instances = Instances(X)
    problems = Levels(Y, random_chain(20, [4]), None, ranker_params(), None)
    for t in range(2):
        problem = problems.problem(t, None)
        documents = [80] if problem.matched is None else np.diff(problem.matched.indptr)
        limit = float(np.median(documents)) / (X.nr_sparse + X.nr_dense)
        monkeypatch.setattr("xmc_tf.linear.tasks.WIDE_DOCUMENTS_A_FEATURE", limit)
        tasks = level_tasks(instances, problem)
        assert ((tasks.parts > 0) == (np.array(documents) >= np.median(documents))[tasks.cluster]).all()
