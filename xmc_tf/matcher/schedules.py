"""Courses of the learning rate over the steps: the formulas, and the names, of transformers."""

import math
from collections.abc import Callable

import tensorflow as tf
import tf_keras

from xmc_tf.common.errors import InputError
from xmc_tf.params.choices import SCHEDULES

# From how much of the way after the warmup is done (0 to 1, or beyond) to the share of the highest rate.
Course = Callable[[tf.Tensor], tf.Tensor]

POLYNOMIAL_END = 1e-7  # the rate, not the share, at which "polynomial" ends


class Schedule(tf_keras.optimizers.schedules.LearningRateSchedule):
    """Rises from 0 to ``peak`` in the warmup, then follows its course to the end.

    Example:
        >>> rate = Schedule("linear", peak=1e-4, warmup=10, total=110)
        >>> [float(rate(step)) for step in (0, 5, 10, 60, 110)]
        [0.0, 5e-05, 0.0001, 5e-05, 0.0]

    Args:
        name: linear, cosine, cosine_with_restarts, polynomial, constant or constant_with_warmup.
        peak: the highest rate.
        warmup: steps of the rise; "constant" has none.
        total: steps of the whole training.
    """

    def __init__(self, name: str, peak: float, warmup: int, total: int) -> None:
        if name not in SCHEDULES:
            raise InputError("lr_schedule", expected=f"one of {', '.join(SCHEDULES)}", received=repr(name))
        self.name, self.peak, self.warmup, self.total = name, peak, warmup, total

    def __call__(self, step: int | tf.Tensor) -> tf.Tensor:
        """The rate of a step, the first of which is 0."""
        step = tf.cast(step, tf.float32)
        if self.name == "constant":
            return tf.fill(tf.shape(step), tf.constant(self.peak, tf.float32))
        rise = step / max(1, self.warmup)
        done = (step - self.warmup) / max(1, self.total - self.warmup)
        course = _polynomial(self.peak) if self.name == "polynomial" else _COURSES[self.name]
        return self.peak * tf.where(step < self.warmup, rise, course(done))

    def get_config(self) -> dict:
        """What it was made with."""
        return {"name": self.name, "peak": self.peak, "warmup": self.warmup, "total": self.total}


def _linear(done: tf.Tensor) -> tf.Tensor:
    return tf.maximum(0.0, 1.0 - done)


def _cosine(done: tf.Tensor) -> tf.Tensor:
    """Half a wave."""
    return 0.5 * (1.0 + tf.cos(math.pi * done))


def _cosine_with_restarts(done: tf.Tensor) -> tf.Tensor:
    """Half a wave, which begins again after the end where cosine would rise; with one cycle it stays at 0."""
    return tf.where(done >= 1.0, 0.0, 0.5 * (1.0 + tf.cos(math.pi * (done % 1.0))))


def _polynomial(peak: float) -> Course:
    """A straight line to ``POLYNOMIAL_END``, where it stays."""
    end = POLYNOMIAL_END / peak
    return lambda done: (1.0 - end) * tf.maximum(0.0, 1.0 - done) + end


def _constant(done: tf.Tensor) -> tf.Tensor:
    return tf.ones_like(done)


_COURSES: dict[str, Course] = {
    "linear": _linear,
    "cosine": _cosine,
    "cosine_with_restarts": _cosine_with_restarts,
    "constant_with_warmup": _constant,
}
