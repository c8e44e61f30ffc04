"""The optimizer of a level: AdamW for the encoder, its row-wise form for the head, one schedule, one clipping."""

from collections.abc import Sequence

import keras
import tensorflow as tf

from xmc_tf.collective.optimizers.keras_optimizer import CollectiveOptimizer
from xmc_tf.collective.optimizers.row_wise import RowAdam
from xmc_tf.collective.strategy import CollectiveStrategy
from xmc_tf.matcher.schedules import Schedule
from xmc_tf.params import MatcherParams


class FusedAdam(keras.optimizers.Adam):
    """Adam, or AdamW with ``weight_decay``, whose update of a variable is one operation.

    It reads and writes each number once; Keras' own update makes ten passes.
    """

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable, learning_rate: tf.Tensor) -> None:
        """Update a variable with a dense gradient."""
        index = self._get_variable_index(variable)
        step = tf.cast(self.iterations.value + 1, tf.float32)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=tf.pow(self.beta_1, step),
            beta2_power=tf.pow(self.beta_2, step),
            lr=tf.cast(learning_rate, tf.float32),
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=self.epsilon,
            grad=gradient,
        )


def make_optimizer(
    strategy: CollectiveStrategy, params: MatcherParams, steps: int, encoder_variables: Sequence[tf.Variable]
) -> CollectiveOptimizer:
    """Return the optimizer of encoder and head.

    Args:
        strategy: the ranks; the losses of all ranks are summed.
        params: learning rates, schedule, decay, clipping, accumulation, precision.
        steps: number of steps of the whole training.
        encoder_variables: trainable variables of the encoder.
    """
    inner = FusedAdam(
        Schedule(params.lr_schedule, params.learning_rate, params.warmup_steps, steps),
        weight_decay=params.weight_decay or None,
        epsilon=params.adam_epsilon,
        global_clipnorm=params.max_grad_norm,
    )
    if params.weight_decay:
        inner.exclude_from_weight_decay(var_list=[one for one in encoder_variables if not decays(one)])
    ratio = params.head_rate / params.learning_rate
    of_rows = RowAdam(
        # The rate of this step: the schedule would be evaluated after the step has been counted.
        lambda: inner.learning_rate * ratio,
        epsilon=params.adam_epsilon,
        weight_decay=params.weight_decay,
    )
    return strategy.optimizer(
        inner,
        table_optimizer=of_rows,
        reduction="sum",
        accumulate=params.gradient_accumulation_steps,
        loss_scale="dynamic" if params.mixed_precision == "fp16" else None,
    )


def decays(variable: tf.Variable) -> bool:
    """Return whether a variable gets weight decay: biases and the scales and shifts of normalization do not."""
    return len(variable.shape) > 1 and "bias" not in variable.name
