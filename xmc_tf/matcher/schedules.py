"""Learning-rate schedules, with the formulas and names of the transformers library."""

import math
from collections.abc import Callable

import keras
import tensorflow as tf

from xmc_tf.common.errors import InputError
from xmc_tf.params.choices import SCHEDULES

# Maps the share of the steps after the warmup that are done (0 to 1, or beyond) to a share of the peak rate.
RateFormula = Callable[[tf.Tensor], tf.Tensor]

POLYNOMIAL_END = 1e-7  # final rate of "polynomial"; an absolute rate, not a share


class Schedule(keras.optimizers.schedules.LearningRateSchedule):
    """A schedule that rises from 0 to ``peak`` in the warmup, then follows the named formula.

    Example:
        >>> rate = Schedule("linear", peak=1e-4, warmup=10, total=110)
        >>> [float(rate(step)) for step in (0, 5, 10, 60, 110)]
        [0.0, 5e-05, 0.0001, 5e-05, 0.0]

    Args:
        name: linear, cosine, cosine_with_restarts, polynomial, constant or constant_with_warmup.
        peak: the peak rate.
        warmup: number of warmup steps; "constant" has none.
        total: number of steps of the whole training.
    """

    def __init__(self, name: str, peak: float, warmup: int, total: int) -> None:
        if name not in SCHEDULES:
            raise InputError("lr_schedule", expected=f"one of {', '.join(SCHEDULES)}", received=repr(name))
        self.name, self.peak, self.warmup, self.total = name, peak, warmup, total

    def __call__(self, step: int | tf.Tensor) -> tf.Tensor:
        """Return the rate of a step; the first step is 0."""
        step = tf.cast(step, tf.float32)
        if self.name == "constant":
            return tf.fill(tf.shape(step), tf.constant(self.peak, tf.float32))
        rise = step / max(1, self.warmup)
        done = (step - self.warmup) / max(1, self.total - self.warmup)
        course = _polynomial(self.peak) if self.name == "polynomial" else _COURSES[self.name]
        return self.peak * tf.where(step < self.warmup, rise, course(done))

    def get_config(self) -> dict:
        """Return the arguments of the constructor."""
        return {"name": self.name, "peak": self.peak, "warmup": self.warmup, "total": self.total}


def _linear(done: tf.Tensor) -> tf.Tensor:
    return tf.maximum(0.0, 1.0 - done)


def _cosine(done: tf.Tensor) -> tf.Tensor:
    """Return half a cosine wave, from 1 to 0."""
    return 0.5 * (1.0 + tf.cos(math.pi * done))


def _cosine_with_restarts(done: tf.Tensor) -> tf.Tensor:
    """Return half a cosine wave, then 0; unlike cosine, it does not rise again after the last step."""
    return tf.where(done >= 1.0, 0.0, 0.5 * (1.0 + tf.cos(math.pi * (done % 1.0))))


def _polynomial(peak: float) -> RateFormula:
    """Return a line from the peak to ``POLYNOMIAL_END``, which is constant afterwards."""
    end = POLYNOMIAL_END / peak
    return lambda done: (1.0 - end) * tf.maximum(0.0, 1.0 - done) + end


def _constant(done: tf.Tensor) -> tf.Tensor:
    return tf.ones_like(done)


_COURSES: dict[str, RateFormula] = {
    "linear": _linear,
    "cosine": _cosine,
    "cosine_with_restarts": _cosine_with_restarts,
    "constant_with_warmup": _constant,
}
