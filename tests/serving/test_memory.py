"""An export never has more than one level of the model in memory."""

import tracemalloc

import numpy as np

from tests.serving.cases import random_model
from xmc_tf.serving import arrangement
from xmc_tf.serving.export import ModelParts, export_model


def test_one_level_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(arrangement, "_BATCH", 20_000)  # in proportion to this model
    model = random_model(np.random.default_rng(1), nr_sparse=2000, sizes=(300,) * 6, density=0.5)
    export_model(ModelParts(random_model(np.random.default_rng(1)), None, None), tmp_path / "0")  # what is loaded once
    tracemalloc.start()
    try:
        exported = export_model(ModelParts(model, None, None), tmp_path / "1")
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    largest = max(level.bytes for level in exported.levels)
    # The level, and one of its arrays a second time while its parts are put together.
    assert most < 2.5 * largest
    assert sum(level.bytes for level in exported.levels) > 5 * largest
