"""Tests that a training saved by three ranks resumes on one or two ranks as if uninterrupted."""

import numpy as np
import pytest

from tests.distributed.launch import horovodrun, python
from tests.plain_tensorflow import ask

pytestmark = [pytest.mark.distributed, pytest.mark.full]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Return the folder, and what the three ranks of the uninterrupted run said."""
    folder = tmp_path_factory.mktemp("run")
    return folder, horovodrun("training.py", "save", str(folder), engine="gloo", world=3)


def assert_same(state, expected):
    assert state.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(state[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(("world", "engine"), [(1, None), (2, "gloo")])
def test_a_training_of_three_ranks_resumes_on_other_numbers(saved, world, engine):
    folder, uninterrupted = saved
    expected = uninterrupted.ranks[0].result["state"]
    assert {"m", "v"} <= expected.keys()
    assert expected["iterations"] == 12
    if engine is None:
        run = python("training.py", "resume", str(folder), imported=True)
    else:
        run = horovodrun("training.py", "resume", str(folder), engine=engine, world=world)
    assert len(run.ranks) == world
    for rank in run.ranks:
        assert_same(rank.result["state"], expected)


def test_plain_tensorflow_loads_the_export_of_three_ranks(saved):
    folder, uninterrupted = saved
    answers = ask(folder / "served", ids=np.arange(40).reshape(-1, 4) % 37)["score"]
    for rank in uninterrupted.ranks:
        np.testing.assert_allclose(answers, rank.result["answers"], rtol=1e-5, atol=1e-6)
    assert {path.name for path in folder.iterdir()} == {"checkpoint", "served"}
