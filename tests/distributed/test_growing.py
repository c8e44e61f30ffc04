"""A training with a growing table that is interrupted on three ranks resumes on others, with all ids."""

import numpy as np
import pytest
import tensorflow as tf

from tests.distributed.launch import horovodrun, python

pytestmark = [pytest.mark.distributed, pytest.mark.full]


def test_a_growing_table_of_three_ranks_resumes_on_others(tmp_path):
    uninterrupted = (
        horovodrun("growing_training.py", "save", str(tmp_path), engine="gloo", world=3, timeout=300).ranks[0].result
    )
    assert len(uninterrupted["saved"]) > 25
    with_row = [one for one in uninterrupted["known"] if one[3]]
    assert 20 <= len(with_row) < len(uninterrupted["known"])
    for run in (
        horovodrun("growing_training.py", "resume", str(tmp_path), engine="mpi", world=2, timeout=300),
        python("growing_training.py", "resume", str(tmp_path), imported=True, timeout=300),
    ):
        for rank in run.ranks:
            assert rank.result["saved"] == uninterrupted["saved"]
            assert rank.result["known"] == uninterrupted["known"]
            np.testing.assert_allclose(rank.result["losses"], uninterrupted["losses"], rtol=1e-4)
        # The export of the last step answers as the model does.
        loaded = tf.saved_model.load(str(tmp_path / "served")).signatures["serving_default"]
        answer = loaded(ids=tf.constant([["item 1", "item 2", "never seen", "item 3"]]))["score"]
        np.testing.assert_allclose(answer, run.ranks[0].result["answer"], rtol=1e-5)
