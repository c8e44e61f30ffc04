"""Every solver reaches the minimum of its objective that scikit-learn and L-BFGS find."""

import numpy as np
import pytest
from scipy.sparse import csc_matrix

from tests.linear.cases import features, full_matrix, label_matrix, random_chain, ranker_params
from tests.linear.objectives import LOSSES, by_sklearn, least, objective
from xmc_tf.data import as_features
from xmc_tf.rankers.fit import train_rankers

TIGHT = {"threshold": 0.0, "eps": 1e-5, "newton_eps": 1e-4, "max_iter": 3000}
solvers = pytest.mark.parametrize("solver", list(LOSSES))


def with_bias(X, bias):
    full = full_matrix(X)
    return np.hstack([full, np.full((len(full), 1), bias)]) if bias > 0 else full


def train_flat(X, Y, solver, **wishes):
    """Return the weights of a model without a tree, (features and bias × labels)."""
    params = ranker_params(solver_type=solver, **{**TIGHT, **wishes})
    return train_rankers(X, Y, params=params, threads=2).levels[0].weights.toarray().astype(np.float64)


def parent_of(clusters):
    return clusters.toarray().argmax(1)


def problem_of(X, Y, label, cp=1.0, cn=1.0):
    signs = np.where(Y[:, [label]].toarray().ravel() > 0, 1.0, -1.0)
    return X, signs, np.where(signs > 0, cp, cn)


@solvers
@pytest.mark.parametrize(
    ("kind", "bias", "cp", "cn"),
    [("sparse", 1.0, 1.0, 1.0), ("private", -1.0, 4.0, 0.5), ("dense", 1.0, 4.0, 0.5), ("both", 2.5, 0.3, 1.0)],
)
def test_objective_is_that_of_scikit_learn(solver, kind, bias, cp, cn):
    X, Y = features(kind, 40), label_matrix(40, 6)
    W = train_flat(X, Y, solver, bias=bias, Cp=cp, Cn=cn)
    full = with_bias(X, bias)
    assert W.shape == (full.shape[1], 6)
    for label in range(2, 6):
        problem = problem_of(full, Y, label, cp, cn)
        ours, theirs = objective(W[:, label], *problem, LOSSES[solver]), by_sklearn(*problem, LOSSES[solver])
        assert ours == pytest.approx(theirs, rel=1e-3)


@solvers
def test_labels_that_are_always_or_never_positive(solver):
    X, Y = features("both", 30), label_matrix(30, 3)
    W = train_flat(X, Y, solver, Cp=2.0)
    full = with_bias(X, 1.0)
    for label in (0, 1):
        problem = problem_of(full, Y, label, cp=2.0)
        assert len(set(problem[1])) == 1
        assert objective(W[:, label], *problem, LOSSES[solver]) == pytest.approx(
            least(*problem, LOSSES[solver]), rel=1e-3
        )


@solvers
@pytest.mark.parametrize("labels", [17, 70])  # a lane is refilled; a cluster is split into several tasks
def test_more_labels_than_lanes(solver, labels):
    X, Y = features("private", 50), label_matrix(50, labels)
    W = train_flat(X, Y, solver)
    full = with_bias(X, 1.0)
    for label in {*range(5), *range(15, 18), labels - 7, labels - 1} & {*range(labels)}:
        problem = problem_of(full, Y, label)
        best = least(*problem, LOSSES[solver])
        assert best * (1 - 1e-6) <= objective(W[:, label], *problem, LOSSES[solver]) <= best * (1 + 1e-3)


@solvers
def test_default_accuracy_is_near_the_optimum(solver):
    """With a hinge, every margin a little below 1 has a cost, so its objective converges last."""
    X, Y = features("private", 80), label_matrix(80, 12)
    W = train_flat(X, Y, solver, eps=0.1, newton_eps=0.01, max_iter=100)
    full = with_bias(X, 1.0)
    slack = 1.15 if LOSSES[solver] == "hinge" else 1.03
    for label in range(0, 12, 2):
        problem = problem_of(full, Y, label)
        assert objective(W[:, label], *problem, LOSSES[solver]) <= slack * least(*problem, LOSSES[solver])


@solvers
def test_one_document(solver):
    X, Y = features("both", 1), csc_matrix(np.array([[1, 0]], np.float32))
    W = train_flat(X, Y, solver)
    full = with_bias(X, 1.0)
    for label in range(2):
        problem = problem_of(full, Y, label)
        assert objective(W[:, label], *problem, LOSSES[solver]) == pytest.approx(
            least(*problem, LOSSES[solver]), rel=1e-3
        )


@solvers
def test_an_empty_row_without_bias(solver):
    """Its margin is always 0; it must neither stop the solver nor change the other documents."""
    X = as_features(features("sparse", 20).sparse)
    assert X.sparse[2].nnz == 0
    Y = label_matrix(20, 5)
    W = train_flat(X, Y, solver, bias=0.0)
    assert np.isfinite(W).all()
    problem = problem_of(full_matrix(X), Y, 3)
    assert objective(W[:, 3], *problem, LOSSES[solver]) == pytest.approx(least(*problem, LOSSES[solver]), rel=1e-3)


@solvers
def test_matched_documents_are_the_negatives(solver):
    """In a tree, a label learns only from the documents of its cluster."""
    X, Y, chain = features("both", 60), label_matrix(60, 20), random_chain(20, [4])
    model = train_rankers(X, Y, chain, params=ranker_params(solver_type=solver, **TIGHT), threads=1)
    full, matched = with_bias(X, 1.0), (Y @ chain[1]).toarray() > 0
    for label in range(0, 20, 3):
        rows = matched[:, parent_of(chain[1])[label]]
        problem = problem_of(full[rows], Y[rows], label)
        w = model.levels[1].weights[:, [label]].toarray().ravel().astype(np.float64)
        assert objective(w, *problem, LOSSES[solver]) == pytest.approx(least(*problem, LOSSES[solver]), rel=1e-3)


@solvers
def test_positives_outside_the_matched_documents_count_for_their_label_alone(solver):
    rng = np.random.default_rng(5)
    X, Y, chain = features("private", 60), label_matrix(60, 20), random_chain(20, [4])
    # The last cluster has none.
    matched = csc_matrix(((rng.random((60, 4)) < 0.3) & (np.arange(4) < 3)).astype(np.float32))
    params = ranker_params("usn", solver_type=solver, **TIGHT)
    model = train_rankers(X, Y, chain, params=params, user_negatives={1: matched}, threads=1)
    full = with_bias(X, 1.0)
    for label in range(0, 20, 3):
        cluster = parent_of(chain[1])[label]
        rows = (matched[:, [cluster]].toarray().ravel() > 0) | (Y[:, [label]].toarray().ravel() > 0)
        w = model.levels[1].weights[:, [label]].toarray().ravel().astype(np.float64)
        if not rows.any():
            assert not w.any()
            continue
        problem = problem_of(full[rows], Y[rows], label)
        assert objective(w, *problem, LOSSES[solver]) == pytest.approx(least(*problem, LOSSES[solver]), rel=1e-3)


@solvers
def test_relevance_is_a_sample_weight(solver):
    X, Y = features("both", 40), label_matrix(40, 6)
    R = Y.copy()
    R.data = np.random.default_rng(3).uniform(0.1, 5, R.nnz).astype(np.float32)
    params = ranker_params(rel_mode="ranker-only", solver_type=solver, Cp=2.0, **TIGHT)
    W = train_rankers(X, Y, R=R, params=params, threads=1).levels[0].weights.toarray().astype(np.float64)
    full = with_bias(X, 1.0)
    for label in range(2, 6):
        _, signs, costs = problem_of(full, Y, label, cp=2.0)
        costs = costs * np.where(signs > 0, R[:, [label]].toarray().ravel(), 1)
        problem = (full, signs, costs, LOSSES[solver])
        assert objective(W[:, label], *problem) == pytest.approx(by_sklearn(*problem), rel=1e-3)


@solvers
def test_relevance_of_a_single_document(solver):
    X, Y = features("dense", 1), csc_matrix(np.ones((1, 1), np.float32))
    params = ranker_params(rel_mode="ranker-only", solver_type=solver, **TIGHT)
    W = train_rankers(X, Y, R=0.05 * Y, params=params).levels[0].weights.toarray().astype(np.float64)
    problem = (with_bias(X, 1.0), np.ones(1), np.full(1, 0.05), LOSSES[solver])
    assert objective(W[:, 0], *problem) == pytest.approx(least(*problem), rel=1e-3)


@solvers
def test_threshold_and_most_weights(solver):
    X, Y = features("both", 40), label_matrix(40, 6)
    whole = train_flat(X, Y, solver)
    np.testing.assert_array_equal(train_flat(X, Y, solver, threshold=0.2), np.where(np.abs(whole) >= 0.2, whole, 0))
    cut = train_flat(X, Y, solver, max_nonzeros_per_label=5)
    for label in range(6):
        heaviest = np.argsort(-np.abs(whole[:, label]), kind="stable")[:5]
        expected = np.zeros(len(whole))
        expected[heaviest] = whole[heaviest, label]
        np.testing.assert_array_equal(cut[:, label], expected)
