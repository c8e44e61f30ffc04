"""Learning rates: compared with numbers calculated by hand, and with the formulas of transformers."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from xmc_tf.matcher.optimizer import POLYNOMIAL_END, Schedule
from xmc_tf.matcher.progress import LevelCurves, StepMeter
from xmc_tf.ranks.solo import Solo

# Of a peak of 2, a warmup of 4 and 12 steps in all: at the steps 0, 1, 4, 6, 8, 12 and 20.
BY_HAND = {
    "constant": [2, 2, 2, 2, 2, 2, 2],
    "constant_with_warmup": [0, 0.5, 2, 2, 2, 2, 2],
    "linear": [0, 0.5, 2, 1.5, 1, 0, 0],
    "cosine": [0, 0.5, 2, 1 + np.sqrt(0.5), 1, 0, 2],
    "cosine_with_restarts": [0, 0.5, 2, 1 + np.sqrt(0.5), 1, 0, 0],
    "polynomial": [0, 0.5, 2, 1.5 + 0.25e-7, 1 + 0.5e-7, POLYNOMIAL_END, POLYNOMIAL_END],
}


@pytest.mark.parametrize("name", BY_HAND)
def test_by_hand(name):
    schedule = Schedule(name, peak=2.0, warmup=4, total=12)
    np.testing.assert_allclose([schedule(step) for step in (0, 1, 4, 6, 8, 12, 20)], BY_HAND[name], atol=1e-6)


def test_restarts_begin_at_the_peak():
    schedule = Schedule("cosine_with_restarts", peak=2.0, warmup=4, total=12, cycles=2)
    expected = [2, 1, 2, 1, 1 - np.sqrt(0.5), 0, 0]
    np.testing.assert_allclose([schedule(step) for step in (4, 6, 8, 10, 11, 12, 20)], expected, atol=1e-6)
    assert Schedule(**schedule.get_config()).get_config() == schedule.get_config()


def test_without_warmup_it_begins_at_the_peak():
    for name in BY_HAND:
        assert float(Schedule(name, peak=3.0, warmup=0, total=5)(0)) == pytest.approx(3.0)


def test_warmup_that_is_longer_than_the_training():
    schedule = Schedule("linear", peak=1.0, warmup=10, total=5)
    assert [float(schedule(step)) for step in (0, 5, 9, 10)] == pytest.approx([0, 0.5, 0.9, 1.0])


def test_keras_uses_the_schedule():
    optimizer = keras.optimizers.SGD(Schedule("linear", peak=1.0, warmup=2, total=4))
    variable = keras.Variable(0.0)
    rates = []
    for _ in range(4):
        before = float(variable)
        optimizer.apply_gradients([(tf.constant(-1.0), variable)])
        rates.append(float(variable) - before)
    assert rates == pytest.approx([0.0, 0.5, 1.0, 0.5])


def test_losses_of_a_long_training_are_thinned():
    curves = LevelCurves()
    for last in range(50, 10_001, 50):
        curves.add_losses(last, [float(step) for step in range(last - 49, last + 1)], 10_000)
    points = curves.by_name["loss"]
    assert len(points) == 200
    assert points[0] == (50, 25.5)
    assert points[-1] == (10_000, 9975.5)
    few = LevelCurves()
    few.add_losses(5, [5.0, 4.0, 3.0, 2.0, 1.0], 5)
    assert few.by_name["loss"] == [(1, 5.0), (2, 4.0), (3, 3.0), (4, 2.0), (5, 1.0)]


def test_points_after_the_checkpoint_are_not_resumed(tmp_path):
    curves = LevelCurves()
    curves.add_losses(2, [3.0, 2.0], 4)
    curves.add_measures(4, {"P@1": 50.0})
    curves.save(tmp_path)
    assert LevelCurves.load(tmp_path, 4).by_name == {"loss": [(1, 3.0), (2, 2.0)], "P@1": [(4, 50.0)]}
    assert LevelCurves.load(tmp_path, 1).by_name == {"loss": [(1, 3.0)], "P@1": []}
    assert LevelCurves.load(tmp_path / "missing", 9).by_name == {}


def test_windows_are_not_counted_as_documents():
    meter = StepMeter(Solo(), documents_per_window=0.25)
    meter.add(tf.constant([1.0, 8, 8, 8]))
    course = meter.take(1)
    assert course.documents_per_second == pytest.approx(course.tokens_per_second / 4)
