"""An encoder of each architecture is fine-tuned: the loss falls, and what is saved answers as what was trained."""

import dataclasses

import numpy as np
import pytest

from tests.encoder.tiny import ARCHITECTURES, CASES, tiny_encoder
from tests.matcher.test_fine_tune import PARAMS, World
from xmc_tf.collective.strategy import CollectiveStrategy
from xmc_tf.encoder import Encoder
from xmc_tf.matcher.candidates import LevelData
from xmc_tf.matcher.fine_tune import fine_tune_level
from xmc_tf.matcher.head import LabelHead
from xmc_tf.ranks.solo import Solo

STEPS = 16
OFTEN = ("bert",)  # in make test


@pytest.mark.parametrize(
    "architecture",
    [pytest.param(one, marks=[] if one in OFTEN else pytest.mark.full) for one in ARCHITECTURES],
)
def test_a_training(architecture, tmp_path):
    world, pad_id = World(tmp_path), CASES[architecture].get("pad_token_id", 0)
    params = dataclasses.replace(PARAMS, max_steps=STEPS, learning_rate=0.02, head_learning_rate=0.1)
    encoder, strategy = tiny_encoder(architecture), CollectiveStrategy(Solo(), seed=2)
    before = [variable.numpy() for variable in encoder.trainable_variables]
    level = (world.task.level, world.task.nr_nodes, encoder.dim, world.task.splits)
    head = LabelHead.for_level(strategy, *level, params)
    data = LevelData(world.store, world.sampler(params), pad_id=pad_id)
    losses = fine_tune_level(strategy, encoder, head, data, params, folder=tmp_path / "run", seed=7).losses
    assert len(losses) == STEPS
    assert np.mean(losses[-4:]) < 0.8 * np.mean(losses[:4])
    # Each matrix of weights has learned; biases may have no gradient.
    assert all(
        (one.numpy() != old).any() for one, old in zip(encoder.trainable_variables, before, strict=True) if old.ndim > 1
    )

    encoder.save(tmp_path / "saved")
    batch = world.store.padded(np.arange(60), pad_id=pad_id)
    np.testing.assert_array_equal(Encoder.load(tmp_path / "saved").embed(*batch), encoder.embed(*batch))
