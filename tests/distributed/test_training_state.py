"""Tests that trainings saved by three ranks resume on one or two ranks as if uninterrupted, and are exported."""

import numpy as np
import pytest
import tensorflow as tf

from tests.distributed.launch import horovodrun, python
from tests.plain_tensorflow import ask

pytestmark = [pytest.mark.distributed, pytest.mark.full]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Return the folder, and what the three ranks of the uninterrupted run said."""
    folder = tmp_path_factory.mktemp("run")
    return folder, horovodrun("training.py", "save", str(folder), engine="gloo", world=3, timeout=300)


@pytest.mark.parametrize(("world", "engine"), [(1, None), (2, "mpi")])
def test_a_training_of_three_ranks_resumes_on_other_numbers(saved, world, engine):
    folder, uninterrupted = saved
    expected = uninterrupted.ranks[0].result
    assert {"m", "v"} <= expected["state"].keys()
    assert expected["state"]["iterations"] == 12
    assert len(expected["saved"]) > 25
    with_row = [one for one in expected["known"] if one[3]]
    assert 20 <= len(with_row) < len(expected["known"])
    command = ("training.py", "resume", str(folder))
    if engine is None:
        run = python(*command, imported=True, timeout=300)
    else:
        run = horovodrun(*command, engine=engine, world=world, timeout=300)
    for rank in run.ranks:
        assert rank.result["state"].keys() == expected["state"].keys()
        for name, value in expected["state"].items():
            np.testing.assert_allclose(rank.result["state"][name], value, rtol=1e-4, atol=1e-5, err_msg=name)
        # The growing table knows all ids.
        assert rank.result["saved"] == expected["saved"]
        assert rank.result["known"] == expected["known"]
        np.testing.assert_allclose(rank.result["losses"], expected["losses"], rtol=1e-4)
    loaded = tf.saved_model.load(str(folder / "served growing")).signatures["serving_default"]
    answer = loaded(ids=tf.constant([["item 1", "item 2", "never seen", "item 3"]]))["score"]
    np.testing.assert_allclose(answer, run.ranks[0].result["answer"], rtol=1e-5)


def test_plain_tensorflow_loads_the_export_of_three_ranks(saved):
    folder, uninterrupted = saved
    answers = ask(folder / "served", ids=np.arange(40).reshape(-1, 4) % 37)["score"]
    for rank in uninterrupted.ranks:
        np.testing.assert_allclose(answers, rank.result["answers"], rtol=1e-5, atol=1e-6)
    assert {path.name for path in folder.iterdir()} - {"served growing"} == {"checkpoint", "growing", "served"}
