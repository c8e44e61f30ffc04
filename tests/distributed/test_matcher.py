"""Tests that fine-tuning on one, two and three ranks has the same losses, head and predictions."""

import shutil

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray

from tests.distributed.launch import horovodrun, python

pytestmark = [pytest.mark.distributed, pytest.mark.full]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return the results of each rank, for two, one and three ranks; the first begin what the others resume."""
    begun, said = tmp_path_factory.mktemp("begun"), {}
    for size, tasks in ((2, ["levels", "begin"]), (1, ["levels", "go on"]), (3, ["go on"])):
        folder = tmp_path_factory.getbasetemp() / f"world_{size}"
        folder.mkdir() if size == 2 else shutil.copytree(begun / "2", folder)
        command = ["matcher_training.py", str(folder), *tasks]
        run = (
            python(*command, imported=True, timeout=240) if size == 1 else horovodrun(*command, world=size, timeout=240)
        )
        if size == 2:
            for name in ("stopped", "tokens"):
                shutil.copytree(folder / name, begun / "2" / name)
        said[size] = [rank.result for rank in run.ranks]
    return said


@pytest.mark.parametrize("kind", ["rows", "features", "accumulated", "budget", "bert", "upper"])
def test_losses_are_those_of_one_rank(runs, kind):
    (alone,) = runs[1]
    assert len(alone[kind]["losses"]) >= 2
    for rank in runs[2]:
        np.testing.assert_allclose(rank[kind]["losses"], alone[kind]["losses"], rtol=1e-5)
        np.testing.assert_allclose(rank[kind]["head"], alone[kind]["head"], rtol=1e-3, atol=2e-5)
        np.testing.assert_allclose(rank[kind]["vectors"], alone[kind]["vectors"], rtol=1e-3, atol=2e-5)


def test_both_routes_give_the_same_and_a_real_batch_decides(runs):
    for size in (1, 2):
        for rank in runs[size]:
            np.testing.assert_allclose(rank["rows"]["losses"], rank["features"]["losses"], rtol=1e-5)
    assert runs[2][0]["accumulated"]["route"] == runs[2][1]["accumulated"]["route"] != "auto"
    assert runs[1][0]["sent"] == {} or not any(runs[1][0]["sent"].values())
    assert all(rank["sent"]["vectors"] > 0 and rank["sent"]["rows"] > 0 for rank in runs[2])


def test_all_levels_with_their_predictions(runs):
    alone = runs[1][0]["all levels"]
    assert len(alone["losses"]) == 3
    for rank in runs[2]:
        ours = rank["all levels"]
        for level, losses in enumerate(alone["losses"]):
            np.testing.assert_allclose(ours["losses"][level], losses, rtol=1e-3)
            for (step, measures), (at, theirs) in zip(
                ours["validations"][level], alone["validations"][level], strict=True
            ):
                assert (step, measures) == (at, pytest.approx(theirs))
        np.testing.assert_allclose(ours["predicted"], alone["predicted"], rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("size", [1, 2])
def test_tensorboard_shows_what_communication_costs(runs, tmp_path_factory, size):
    events = EventAccumulator(
        str(tmp_path_factory.getbasetemp() / f"world_{size}" / f"logs {size}"), size_guidance={"tensors": 0}
    )
    events.Reload()

    def curve(level, name):
        return [float(make_ndarray(event.tensor_proto)) for event in events.Tensors(f"level_{level}/{name}")]

    assert len(runs[size]) == size
    for level in (1, 2, 3):
        whole, sent = curve(level, "step_ms"), curve(level, "wire_bytes_per_step")
        assert len(whole) == len(sent) == 4
        assert min(whole) > 0
        assert min(sent) > 0 if size > 1 else sent == [0.0] * 4


def test_a_training_of_two_ranks_resumes_on_other_numbers(runs):
    """One rank and three resume from a checkpoint in an epoch, like the uninterrupted run of one rank."""
    (alone,) = runs[1]
    assert all(rank["begin"] is True for rank in runs[2])
    for size in (1, 3):
        for rank in runs[size]:
            np.testing.assert_allclose(rank["go on"]["losses"], alone["features"]["losses"][8:], rtol=1e-5)
            np.testing.assert_allclose(rank["go on"]["head"], alone["features"]["head"], rtol=1e-3, atol=2e-5)
