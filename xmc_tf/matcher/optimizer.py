"""The optimizer of a level: AdamW for the encoder, its row-wise form for the head, one schedule, one clipping."""

from collections.abc import Sequence

import tensorflow as tf
import tf_keras

from xmc_tf.collective.optimizers.keras_optimizer import CollectiveOptimizer
from xmc_tf.collective.optimizers.row_wise import RowAdam
from xmc_tf.collective.strategy import CollectiveStrategy
from xmc_tf.matcher.schedules import Schedule
from xmc_tf.params import MatcherParams


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
    inner = tf_keras.optimizers.AdamW(
        Schedule(params.lr_schedule, params.learning_rate, params.warmup_steps, steps),
        weight_decay=params.weight_decay,
        epsilon=params.adam_epsilon,
        global_clipnorm=params.max_grad_norm,
    )
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
    """Return whether a variable gets weight decay: biases and the scales and shifts of LayerNorm do not."""
    name = variable.name.lower()
    return len(variable.shape) > 1 and "bias" not in name and "layernorm" not in name and "layer_norm" not in name
