"""The examples run as they say, alone and on several workers, and give the same."""

import ast
import re

import numpy as np
import pytest
import tensorflow as tf

from tests.distributed.launch import REPOSITORY, horovodrun, python

pytestmark = pytest.mark.distributed

EXAMPLES = REPOSITORY / "examples"


def losses(run):
    """By rank, the losses that the workers of ``variable.py`` print."""
    return [[float(loss) for loss in re.findall(r"loss (\S+)", rank.output)] for rank in run.ranks]


def textbook(workers):
    """Return the same losses without any of the package: dense Adagrad on the mean of the workers' gradients."""
    table, scale = np.ones((1000, 3)), np.array(2.0)
    squares = [np.full_like(table, 0.1), np.full_like(scale, 0.1)]
    said = [[] for _ in range(workers)]
    for _ in range(5):
        gradients = [np.zeros_like(table), np.zeros_like(scale)]
        for worker in range(workers):
            ids = [0, 1, 2, 5, 6, 7 + 900 * worker]
            said[worker].append(np.square(table[ids] * scale).sum())
            gradients[0][ids] += 2 * table[ids] * scale**2 / workers
            gradients[1] += (2 * scale * np.square(table[ids])).sum() / workers
        for value, square, gradient in zip((table, scale), squares, gradients, strict=True):
            square += gradient**2
            value -= 0.1 * gradient / np.sqrt(square + 1e-7)
    return said


@pytest.mark.parametrize("workers", [1, 2])
def test_a_variable_a_lookup_and_a_loss(workers):
    example = EXAMPLES / "variable.py"
    run = python(example) if workers == 1 else horovodrun(example, engine="gloo", world=workers)
    np.testing.assert_allclose(losses(run), textbook(workers), atol=1e-3)


def results(run):
    """What the first worker of ``movielens.py`` measured on held-out ratings."""
    return ast.literal_eval(re.search(r"held-out ratings: (.*)", run.ranks[0].output)[1])


def test_movielens_with_the_estimator(tmp_path):
    run = horovodrun(EXAMPLES / "movielens.py", str(tmp_path), engine="mpi", world=3, timeout=240)
    measured = results(run)
    # Always saying 3 is wrong by 0.75 on the average.
    assert measured["mae"] < 0.5
    assert "held-out ratings" not in run.ranks[1].output + run.ranks[2].output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint", "eval", "served", "train"]
    # 8 batches, dealt out to three, are evaluated to the same as by one, who has nothing to train any more.
    again = results(python(EXAMPLES / "movielens.py", str(tmp_path)))
    assert again == pytest.approx(measured, rel=1e-5)
    served = tf.saved_model.load(str(tmp_path / "served" / "1")).signatures["serving_default"]
    rating = served(user_id=tf.constant([3, 3], tf.int64), movie_id=tf.constant([5, 299], tf.int64))["rating"]
    assert rating.shape == (2, 1)
    assert np.isfinite(rating).all()
