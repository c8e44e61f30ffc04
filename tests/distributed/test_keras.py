"""Tests of Keras 3 models over ranks: their predictions are those of one process, with a part of the table on each."""

import numpy as np
import pytest

from tests.distributed.launch import horovodrun, python

pytestmark = [pytest.mark.distributed, pytest.mark.full]


def test_three_ranks_train_what_one_process_trains():
    alone = python("keras_script.py", imported=True, timeout=300).ranks[0].result
    run = horovodrun("keras_script.py", world=3, timeout=400)
    assert len(alone["predictions"]) == len(alone["tables"]) == 3
    assert alone["tables"] == [[6000, 64]] * 3
    for rank in run.ranks:
        assert rank.result["tables"] == [[2000, 64]] * 3
        for kind, predictions in rank.result["predictions"].items():
            np.testing.assert_allclose(predictions, alone["predictions"][kind], atol=1e-4, err_msg=kind)
    # Training has changed them, and not all kinds are the same computation.
    first = list(alone["predictions"].values())
    assert np.std(first[0]) > 0.01
