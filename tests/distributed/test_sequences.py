"""Tests that sequence models train the same on 1, 2 and 4 ranks, model or data parallel, and resume on others."""

import json

import numpy as np
import pytest

from tests.distributed.launch import horovodrun, mpiexec, python
from tests.sequences.chains import markov_table
from tests.sequences.forms import FORMS, run_forms
from xmc_tf.ranks.solo import Solo
from xmc_tf.sequences.data.preparation import prepare

pytestmark = [pytest.mark.distributed, pytest.mark.full]
TWO_RANKS = ["full", "full, data parallel", "sampled", "sampled, rows"]
RESUMED = ["full", "sampled, data parallel"]
TIMEOUT = 300  # several trainings in each run, each with graphs to trace


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Return the folder, and the results of one process; checkpoints of its third step are in ``half``."""
    folder = tmp_path_factory.mktemp("sequences")
    prepare([markov_table(folder / "i.csv", users=60, length=9, items=23)], folder / "data")
    run_forms(Solo(), folder / "data", folder / "half", 3, RESUMED)
    return folder, run_forms(Solo(), folder / "data", folder / "alone", 6, FORMS)


def assert_same(found, expected, skip=0):
    np.testing.assert_allclose(found["losses"], expected["losses"][skip:], rtol=1e-5)
    assert found["metrics"] == pytest.approx(expected["metrics"], abs=1e-6)
    assert found["items"] == expected["items"]
    np.testing.assert_allclose(found["scores"], expected["scores"], atol=1e-5)


def test_data_parallel_and_both_routes_are_the_same_alone(alone):
    results = alone[1]
    for one, other in (
        ("full, data parallel", "full"),
        ("sampled, rows", "sampled"),
        ("sampled, data parallel", "sampled"),
    ):
        assert_same(results[one], results[other])


def test_two_ranks_train_as_one(alone):
    folder, expected = alone
    arguments = [str(folder / "data"), str(folder / "two"), "6", *TWO_RANKS]
    run = horovodrun("sequences_training.py", *arguments, engine="mpi", timeout=TIMEOUT)
    assert len(run.ranks) == 2
    for rank in run.ranks:
        for name in TWO_RANKS:
            assert_same(rank.result[name], expected[name])


def test_four_ranks_resume_the_training_of_one(alone):
    folder, expected = alone
    arguments = [str(folder / "data"), str(folder / "half"), "6", *RESUMED]
    run = horovodrun("sequences_training.py", *arguments, engine="gloo", world=4, timeout=TIMEOUT)
    assert len(run.ranks) == 4
    for rank in run.ranks:
        for name in RESUMED:
            assert_same(rank.result[name], expected[name], skip=3)


def test_the_command_trains_over_ranks_what_it_trains_alone(alone):
    folder, found = alone[0], {}
    for name, ranks in (("one", 1), ("two", 2)):
        place = folder / f"command-{name}"
        settings = (
            f"data_dir={folder / 'data'} model_dir={place} model=sasrec max_len=6 sliding_step=3 embed_dim=8 "
            f"n_layers=1 max_steps=8 dropout=0 learning_rate=0.05 seed=1 per_device_train_batch_size={24 // ranks}"
        )
        command = ["module:xmc_tf.sequences.train", *(word for one in settings.split() for word in ("--set", one))]
        start = python if ranks == 1 else mpiexec
        start(*command, imported=True, timeout=TIMEOUT)
        found[name] = json.loads((place / "params.json").read_text())["metrics"]
    assert found["one"]["test"]["MRR"] > 0
    for part, expected in found["one"].items():
        assert found["two"][part] == pytest.approx(expected, abs=1e-4), part
