"""Checkpoints of version 0.2, whose optimizers were Keras 2's, are refused by name; their weights can be read."""

import json

import keras
import numpy as np
import pytest

from xmc_tf.collective.checkpoints.manifest import MANIFEST
from xmc_tf.collective.checkpoints.training_state import load_training, save_training
from xmc_tf.collective.strategy import CollectiveStrategy
from xmc_tf.common.errors import InputError

pytestmark = pytest.mark.full


def test_a_training_that_version_0_2_began_is_refused(tmp_path):
    strategy = CollectiveStrategy()
    with strategy.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("adam", "mse")
    model.fit(np.ones((4, 2)), np.ones(4), verbose=0)
    save_training(tmp_path, model, strategy.communicator)
    assert load_training(tmp_path, model, strategy.communicator) == 1
    content = json.loads((tmp_path / MANIFEST).read_text())
    (tmp_path / MANIFEST).write_text(json.dumps(content | {"version": 2}))
    with pytest.raises(InputError, match=r"was written by xmc_tf 0\.2 or an older version"):
        load_training(tmp_path, model, strategy.communicator)
    assert load_training(tmp_path, model, strategy.communicator, optimizer=False) == 1
