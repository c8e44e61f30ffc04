"""Every solver reaches the minimum that scikit-learn and L-BFGS find, with any seed and any number of threads."""

import numpy as np
import pytest
from scipy.sparse import csc_matrix

from tests.linear.cases import features, full_matrix, label_matrix, random_chain, ranker_params
from tests.linear.objectives import LOSSES, by_sklearn, least, objective
from xmc_tf.rankers.fit import train_rankers

TIGHT = {"threshold": 0.0, "eps": 1e-5, "newton_eps": 1e-4, "max_iter": 3000}
solvers = pytest.mark.parametrize("solver", list(LOSSES))


def with_bias(X, bias=1.0):
    full = full_matrix(X)
    return np.hstack([full, np.full((len(full), 1), bias)]) if bias > 0 else full


def train_flat(X, Y, solver, R=None, **options):
    """Return the weights of a model without a tree, (features and bias × labels)."""
    params = ranker_params(solver_type=solver, **{**TIGHT, **options})
    return train_rankers(X, Y, R=R, params=params, threads=2).levels[0].weights.toarray().astype(np.float64)


def positives(Y, label):
    return Y[:, [label]].toarray().ravel() > 0


def assert_best(w, X, Y, label, solver, *, cp=1.0, cn=1.0, rows=slice(None), relevance=1.0, slack=1e-3):
    """Assert that a label's weights reach the minimum of its objective, which L-BFGS finds, on some rows."""
    positive = positives(Y, label)
    costs = np.where(positive, cp * relevance, cn)
    problem = X[rows], np.where(positive, 1.0, -1.0)[rows], costs[rows], LOSSES[solver]
    best = least(*problem)
    assert best * (1 - 1e-6) <= objective(w, *problem) <= best * (1 + slack)


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
        signs = np.where(positives(Y, label), 1.0, -1.0)
        problem = full, signs, np.where(signs > 0, cp, cn), LOSSES[solver]
        assert objective(W[:, label], *problem) == pytest.approx(by_sklearn(*problem), rel=1e-3)


# Features, labels, those that are compared, and options of the training.
CASES = {
    "always or never positive": ("both", label_matrix(30, 3), (0, 1), {"Cp": 2.0}),
    "one document": ("both", csc_matrix(np.array([[1, 0]], np.float32)), (0, 1), {}),
    # The margin of this row is always 0; it must neither stop the solver nor change the other documents.
    "an empty row without bias": ("sparse", label_matrix(20, 5), (3,), {"bias": 0.0}),
    "a lane is refilled": ("private", label_matrix(50, 17), (*range(5), 10, 15, 16), {}),
    "a cluster is split into several tasks": ("private", label_matrix(50, 70), (*range(5), 15, 16, 17, 63, 69), {}),
}


@solvers
@pytest.mark.parametrize("case", CASES)
def test_edge_cases_reach_the_minimum(solver, case):
    kind, Y, labels, options = CASES[case]
    X = features(kind, Y.shape[0])
    W = train_flat(X, Y, solver, **options)
    assert np.isfinite(W).all()
    for label in labels:
        assert_best(W[:, label], with_bias(X, options.get("bias", 1.0)), Y, label, solver, cp=options.get("Cp", 1.0))


@solvers
def test_default_accuracy_is_near_the_optimum(solver):
    """With a hinge, every margin a little below 1 has a cost, so its objective converges last."""
    X, Y = features("private", 80), label_matrix(80, 12)
    W = train_flat(X, Y, solver, eps=0.1, newton_eps=0.01, max_iter=100)
    for label in range(0, 12, 2):
        slack = 0.15 if LOSSES[solver] == "hinge" else 0.03
        assert_best(W[:, label], with_bias(X), Y, label, solver, slack=slack)


@solvers
@pytest.mark.parametrize(("scheme", "kind"), [("tfn", "both"), ("usn", "private")])
def test_in_a_tree_a_label_learns_from_its_positives_and_the_matched_documents(solver, scheme, kind):
    """The last cluster has no negatives of the user's."""
    X, Y, chain = features(kind, 60), label_matrix(60, 20), random_chain(20, [4])
    given = (np.random.default_rng(5).random((60, 4)) < 0.3) & (np.arange(4) < 3)
    params, user = ranker_params(scheme, solver_type=solver, **TIGHT), {1: csc_matrix(given.astype(np.float32))}
    model = train_rankers(X, Y, chain, params=params, user_negatives=user, threads=1)
    matched = given if scheme == "usn" else (Y @ chain[1]).toarray() > 0
    for label in range(0, 20, 3):
        rows = matched[:, chain[1].toarray()[label].argmax()] | positives(Y, label)
        w = model.levels[1].weights[:, [label]].toarray().ravel().astype(np.float64)
        if rows.any():
            assert_best(w, with_bias(X), Y, label, solver, rows=rows)
        else:
            assert not w.any()


@solvers
@pytest.mark.parametrize(("documents", "least_r", "most_r"), [(40, 0.1, 5), (1, 0.05, 0.05)])
def test_relevance_is_a_sample_weight(solver, documents, least_r, most_r):
    X = features("both", documents)
    Y = label_matrix(documents, 6) if documents > 1 else csc_matrix(np.ones((1, 1), np.float32))
    R = Y.copy()
    R.data = np.random.default_rng(3).uniform(least_r, most_r, R.nnz).astype(np.float32)
    W = train_flat(X, Y, solver, R, rel_mode="ranker-only", Cp=2.0)
    for label in range(2, 6) if documents > 1 else [0]:
        relevance = R[:, [label]].toarray().ravel().astype(np.float64)
        assert_best(W[:, label], with_bias(X), Y, label, solver, cp=2.0, relevance=relevance)


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


def bytes_of(model):
    return [
        array.tobytes()
        for level in model.levels
        for array in (level.weights.indptr, level.weights.indices, level.weights.data)
    ]


@pytest.mark.parametrize("solver", list(LOSSES))
def test_threads_do_not_matter(solver):
    X, Y, chain = features("both", 80), label_matrix(80, 150), random_chain(150, [2, 5])
    params = ranker_params(["tfn", "tfn+man", "tfn"], solver_type=solver)
    one, other = (bytes_of(train_rankers(X, Y, chain, params=params, threads=threads)) for threads in (1, 3))
    assert one == other


@pytest.mark.parametrize("solver", list(LOSSES))
def test_seeds_change_the_order_and_not_the_optimum(solver):
    X, Y = features("private", 60), label_matrix(60, 5)
    params = ranker_params(solver_type=solver, threshold=0.0, eps=1e-4, newton_eps=1e-4, max_iter=2000)
    models = [train_rankers(X, Y, params=params, threads=1, seed=seed) for seed in (0, 0, 7)]
    assert bytes_of(models[0]) == bytes_of(models[1])
    if "DUAL" in solver:
        assert bytes_of(models[0]) != bytes_of(models[2])
    full = np.hstack([full_matrix(X), np.ones((60, 1))])
    for label in range(5):
        signs = np.where(Y[:, [label]].toarray().ravel() > 0, 1.0, -1.0)
        values = [
            objective(model.levels[0].weights[:, [label]].toarray().ravel(), full, signs, np.ones(60), LOSSES[solver])
            for model in models
        ]
        assert values[0] == pytest.approx(values[2], rel=5e-3)


def test_tasks_may_be_cut_anywhere(monkeypatch):
    """The labels that share a task change the visiting order, and the weights only within the solver's accuracy."""
    X, Y = features("both", 60), label_matrix(60, 40)
    params = ranker_params(threshold=0.0, eps=1e-6, max_iter=2000)
    whole = train_rankers(X, Y, params=params, threads=1).levels[0].weights.toarray()
    monkeypatch.setattr("xmc_tf.rankers.tasks.LABELS_PER_TASK", 5)
    cut = train_rankers(X, Y, params=params, threads=1).levels[0].weights.toarray()
    np.testing.assert_allclose(cut, whole, atol=1e-4)
