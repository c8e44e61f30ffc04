"""One seed gives one model, whatever the number of threads."""

import numpy as np
import pytest

from tests.linear.cases import features, full_matrix, label_matrix, random_chain, ranker_params
from tests.linear.objectives import LOSSES, objective
from xmc_tf.rankers.fit import train_rankers


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
