"""Tests of the examples, which have the same results on one rank and on several."""

import ast
import re
from functools import partial

import numpy as np
import pytest
import tensorflow as tf

from tests.distributed.launch import REPOSITORY, horovodrun, mpiexec, python

pytestmark = [pytest.mark.distributed, pytest.mark.full]

EXAMPLES = REPOSITORY / "examples"


def losses(run):
    """Return the losses that the ranks of ``variable.py`` print, by rank."""
    return [[float(loss) for loss in re.findall(r"loss (\S+)", rank.output)] for rank in run.ranks]


def textbook(ranks):
    """Return the expected losses: dense Adagrad on the mean of the ranks' gradients, without the package."""
    table, scale = np.ones((1000, 3)), np.array(2.0)
    squares = [np.full_like(table, 0.1), np.full_like(scale, 0.1)]
    said = [[] for _ in range(ranks)]
    for _ in range(5):
        gradients = [np.zeros_like(table), np.zeros_like(scale)]
        for rank in range(ranks):
            ids = [0, 1, 2, 5, 6, 7 + 900 * rank]
            said[rank].append(np.square(table[ids] * scale).sum())
            gradients[0][ids] += 2 * table[ids] * scale**2 / ranks
            gradients[1] += (2 * scale * np.square(table[ids])).sum() / ranks
        for value, square, gradient in zip((table, scale), squares, gradients, strict=True):
            square += gradient**2
            value -= 0.1 * gradient / np.sqrt(square + 1e-7)
    return said


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_variable_a_lookup_and_a_loss(ranks):
    example = EXAMPLES / "variable.py"
    run = python(example, imported=True) if ranks == 1 else horovodrun(example, engine="gloo", world=ranks)
    np.testing.assert_allclose(losses(run), textbook(ranks), atol=1e-3)


def test_a_dlrm_with_several_tables_learns_and_is_exported(tmp_path):
    served = tmp_path / "served"
    options = ["--rows", "10", "60", "2000", "--steps", "100", "--folder", str(served)]
    run = horovodrun(EXAMPLES / "dlrm.py", *options, engine="mpi", world=2, timeout=480)
    said = [float(loss) for loss in re.findall(r"loss (\S+)", run.ranks[0].output)]
    assert len(said) == 10
    assert said[0] > 0.6
    assert said[-1] < 0.62
    assert "loss" not in run.ranks[1].output
    plan = {
        line.split()[0]: line.split()[1] for line in run.ranks[0].output.splitlines() if line.startswith("category_")
    }
    assert plan == {"category_0": "replicated", "category_1": "rows", "category_2": "rows"}
    score = tf.saved_model.load(str(served)).signatures["serving_default"]
    ids = {f"category_{number}": tf.constant([3, 5], tf.int64) for number in range(3)}
    (scores,) = score(numbers=tf.zeros([2, 4]), **ids).values()
    assert np.isfinite(scores).all()


OF_KERAS = ["dcn", "in_batch", "listwise", "multitask"]  # those with exact=True


@pytest.fixture(scope="module")
def programs_alone():
    """Return what the programs of examples/collective find in one process, some of them with Keras alone."""
    others = ["deeprec_session", "dlrm", "ranking", "retrieval", "sasrec"]
    return {
        name: result
        for arguments in (["plain", *OF_KERAS], others)
        for name, result in python("collective_examples.py", *arguments, imported=True, timeout=200)
        .ranks[0]
        .result.items()
    }


@pytest.mark.parametrize(
    ("launch", "world", "programs"),
    [
        pytest.param(
            partial(mpiexec, imported=True),
            2,
            ["dcn", "deeprec_session", "in_batch", "ranking", "retrieval"],
            id="mpiexec",
        ),
        pytest.param(horovodrun, 3, ["dlrm", "listwise", "multitask", "sasrec"], id="horovodrun"),
    ],
)
def test_programs_of_others_train_and_predict_the_same_on_several_ranks(launch, world, programs, programs_alone):
    written = {path.stem for path in (EXAMPLES / "collective").glob("*.py")}
    assert written == {*programs_alone, "synthetic"}
    run = launch("collective_examples.py", *programs, world=world, timeout=300)
    for rank in run.ranks:
        assert sorted(rank.result) == programs
        for name in programs:
            alone = programs_alone[name]
            np.testing.assert_allclose(rank.result[name]["losses"], alone["losses"], rtol=1e-4, err_msg=name)
            np.testing.assert_allclose(rank.result[name]["predictions"], alone["predictions"], atol=1e-3, err_msg=name)
            assert alone["losses"][-1] < 0.97 * alone["losses"][0]


def results(run):
    """Return the metrics of rank 0 of ``movielens.py`` on held-out ratings."""
    return ast.literal_eval(re.search(r"held-out ratings: (.*)", run.ranks[0].output)[1])


def test_movielens_with_the_estimator(tmp_path):
    run = horovodrun(EXAMPLES / "movielens.py", str(tmp_path), engine="mpi", world=3, timeout=240)
    measured = results(run)
    # A constant prediction of 3 has a mean error of 0.75.
    assert measured["mae"] < 0.5
    assert "held-out ratings" not in run.ranks[1].output + run.ranks[2].output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint", "eval", "served", "train"]
    # 8 batches evaluate to the same on three ranks as on one, which has nothing left to train.
    again = results(python(EXAMPLES / "movielens.py", str(tmp_path), imported=True))
    assert again == pytest.approx(measured, rel=1e-5)
    served = tf.saved_model.load(str(tmp_path / "served" / "1")).signatures["serving_default"]
    rating = served(user_id=tf.constant([3, 3], tf.int64), movie_id=tf.constant([5, 299], tf.int64))["rating"]
    assert rating.shape == (2, 1)
    assert np.isfinite(rating).all()
