"""Learning rates: compared with numbers calculated by hand, and with the formulas of transformers."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from xmc_tf.matcher.optimizer import POLYNOMIAL_END, Schedule

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
