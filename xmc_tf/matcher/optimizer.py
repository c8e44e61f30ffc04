"""The optimizer of a level (AdamW for the encoder, row-wise Adam for the head, joint clipping), and its schedules."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from xmc_tf.collective.optimizers.keras_optimizer import CollectiveOptimizer
from xmc_tf.collective.optimizers.row_wise.optimizers import RowAdam
from xmc_tf.collective.strategy import CollectiveStrategy
from xmc_tf.params import MatcherParams


class TrainedVariables(NamedTuple):
    """The attributes that ``collective.checkpoints.training_state`` reads from a model."""

    variables: Sequence[tf.Variable]
    trainable_variables: Sequence[tf.Variable]
    optimizer: Any


class Position:
    """The position in training: steps (including those skipped for overflow), epoch, batch, and the best validation."""

    def __init__(self) -> None:
        with tf.device("/cpu:0"):  # every step reads them, and should not wait for a GPU
            # Step, epoch, batches taken in that epoch, validations since the best one.
            self._counts = tf.Variable(tf.zeros([4], tf.int64), trainable=False, name="position")
            self._best = tf.Variable(tf.constant(-np.inf, tf.float64), trainable=False, name="best")

    @property
    def variables(self) -> list[tf.Variable]:
        """The variables to save in checkpoints."""
        return [self._counts, self._best]

    @property
    def step(self) -> int:
        return int(self._counts[0])

    @property
    def epoch(self) -> int:
        """Number of the epoch to which the next batch belongs."""
        return int(self._counts[1])

    @property
    def batch(self) -> int:
        """Number of batches that have been processed in this epoch."""
        return int(self._counts[2])

    @property
    def best(self) -> float:
        return float(self._best)

    def advance(self, epoch: int, batch: int) -> None:
        """Count a step, after which ``batch`` batches of the epoch have been processed."""
        counts = self._counts.numpy()
        self._counts.assign([counts[0] + 1, epoch, batch, counts[3]])

    def is_better(self, value: float) -> bool:
        """Record a validation result; return whether it is the best so far."""
        counts, better = self._counts.numpy(), value > self.best
        self._counts.assign([*counts[:3], 0 if better else counts[3] + 1])
        if better:
            self._best.assign(value)
        return better

    def given_up(self, patience: int) -> bool:
        """Return whether the last ``patience`` validations did not improve; False if ``patience`` is 0 or less."""
        return 0 < patience <= int(self._counts[3])


POLYNOMIAL_END = 1e-7  # final rate of "polynomial"; an absolute rate, not a share


class Schedule(keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate that rises from 0 to ``peak`` during warmup, then follows a formula; "constant" has no warmup."""

    def __init__(self, name: str, peak: float, warmup: int, total: int, cycles: int = 1) -> None:
        self.name, self.peak, self.warmup, self.total, self.cycles = name, peak, warmup, total, cycles

    def __call__(self, step: int | tf.Tensor) -> tf.Tensor:
        """Return the learning rate of a step, counted from 0."""
        step = tf.cast(step, tf.float32)
        if self.name == "constant":
            return tf.fill(tf.shape(step), tf.constant(self.peak, tf.float32))
        rise = step / max(1, self.warmup)
        done = (step - self.warmup) / max(1, self.total - self.warmup)
        return self.peak * tf.where(step < self.warmup, rise, self._after_warmup(done))

    def _after_warmup(self, done: tf.Tensor) -> tf.Tensor:
        """Return the rate divided by ``peak``; ``done`` is the completed share of steps after warmup (may exceed 1)."""
        if self.name == "linear":
            return tf.maximum(0.0, 1.0 - done)
        if self.name == "cosine":
            return 0.5 * (1.0 + tf.cos(math.pi * done))
        if self.name == "cosine_with_restarts":  # each cycle starts at the peak; unlike cosine, 0 after the end
            return tf.where(done >= 1.0, 0.0, 0.5 * (1.0 + tf.cos(math.pi * (done * self.cycles % 1.0))))
        if self.name == "polynomial":
            end = POLYNOMIAL_END / self.peak
            return (1.0 - end) * tf.maximum(0.0, 1.0 - done) + end
        return tf.ones_like(done)

    def get_config(self) -> dict:
        """Return the arguments of the constructor."""
        return {"name": self.name, "peak": self.peak, "warmup": self.warmup, "total": self.total, "cycles": self.cycles}


class FusedAdam(keras.optimizers.Adam):
    """Adam(W) with a single operation per variable, which reads and writes each number once instead of ten times."""

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable, learning_rate: tf.Tensor) -> None:
        """Update a variable with a dense gradient."""
        index = self._get_variable_index(variable)
        step = tf.cast(self.iterations.value + 1, tf.float32)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle, m=self._momentums[index].value.handle, v=self._velocities[index].value.handle,
            beta1_power=tf.pow(self.beta_1, step), beta2_power=tf.pow(self.beta_2, step),
            lr=tf.cast(learning_rate, tf.float32), beta1=self.beta_1, beta2=self.beta_2, epsilon=self.epsilon,
            grad=gradient,
        )  # fmt: skip


def make_optimizer(
    strategy: CollectiveStrategy, params: MatcherParams, steps: int, encoder_variables: Sequence[tf.Variable]
) -> CollectiveOptimizer:
    """Return the optimizer of encoder and head for a training run of ``steps`` steps."""
    inner = FusedAdam(
        Schedule(params.lr_schedule, params.learning_rate, params.warmup_steps, steps, params.lr_cycles),
        weight_decay=params.weight_decay or None, epsilon=params.adam_epsilon, global_clipnorm=params.max_grad_norm,
    )  # fmt: skip
    if params.weight_decay:
        inner.exclude_from_weight_decay(var_list=[one for one in encoder_variables if not decays(one)])
    ratio = params.head_rate / params.learning_rate
    # The rate of this step; the schedule itself would be evaluated after the step has been counted.
    of_rows = RowAdam.of(inner, lambda: inner.learning_rate * ratio)
    return strategy.optimizer(
        inner, table_optimizer=of_rows, reduction="sum", accumulate=params.gradient_accumulation_steps,
        loss_scale="dynamic" if params.mixed_precision == "fp16" else None,
    )  # fmt: skip


def decays(variable: tf.Variable) -> bool:
    """Return whether a variable gets weight decay. Biases and the scales and shifts of normalization do not."""
    return len(variable.shape) > 1 and "bias" not in variable.name
