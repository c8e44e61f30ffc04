"""An export never has more than one level of the model in memory."""

import tracemalloc

import numpy as np
import pytest

from tests.serving.cases import random_model
from xmc_tf.params import PredictionOptions
from xmc_tf.serving import arrangement, export
from xmc_tf.serving.streamed import StreamedVariables

pytestmark = pytest.mark.full


def test_one_level_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(arrangement, "BATCH", 20_000)  # in proportion to this model
    model = random_model(np.random.default_rng(1), nr_sparse=2000, sizes=(300,) * 15, density=0.5)

    def stream(folder):
        # What an export does with weights, without its graph: a graph's objects take more than this model.
        store = StreamedVariables(tmp_path / folder)
        return export._stream_levels(model, PredictionOptions(beam_size=4), store, "")[0]

    stream("first")  # what is loaded and compiled once
    tracemalloc.start()
    try:
        levels = stream("second")
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    largest = max(level.bytes for level in levels)
    assert sum(level.bytes for level in levels) > 14 * largest
    # The level, and what it takes to put it together: much here, where every row has a single weight.
    assert most < 7 * largest
