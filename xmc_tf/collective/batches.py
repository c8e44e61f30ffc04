"""The batch of a step: this rank's part, and what is computed from the parts of all ranks."""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

import tensorflow as tf

from xmc_tf.collective.blocks import set_in_block
from xmc_tf.collective.engines import operations

log = logging.getLogger(__name__)
NOT_WEIGHTED = "train_step does not weight its loss, but the ranks have batches of different sizes"


class BatchShare:
    """This rank's part of the batch of a step. All ranks must call and read the same things in the same order.

    ``told`` contains the model's earlier warnings, which are not repeated.
    """

    def __init__(self, examples: tf.Tensor, size: int, told: set[str] | None = None) -> None:
        self.number = tf.get_static_value(examples)  # None if it is only known in each step
        self.is_empty = tf.equal(examples, 0)
        self._examples, self.size, self.is_weighted = tf.cast(examples, tf.float64), size, False
        self._over_ranks: tf.Tensor | None = None
        self.scaled: list[tf.Tensor] = []  # results of ``scale_loss``
        self.means: list[tf.Tensor] = []  # losses that are means over this rank's examples
        self.gradients: list[Any] = []  # results of gradient tapes
        self.updates: list[tuple[Any, Any]] | None = None  # values and weights that a metric would count
        self.check_loss: Callable[[tf.Tensor], None] = lambda loss: None
        self._told = set() if told is None else told
        self.gathers = 0  # how often the rows of all ranks were gathered
        self.adds_losses = False  # whether Keras's ``compute_loss`` adds up the losses of layers
        self.has_whole_loss = False  # whether a loss was computed from the examples of all ranks

    def warn(self, message: str) -> None:
        """Log a warning on the first rank, unless the model's steps have logged it before."""
        if message not in self._told and operations.is_first_rank():
            log.warning(message)
        self._told.add(message)

    @property
    def weight(self) -> tf.Tensor:
        """This rank's weight in the mean loss: 1 if ranks have the same number of examples."""
        return tf.cast(tf.math.divide_no_nan(self._examples * self.size, self._sums[0]), tf.float32)

    @property
    def is_even(self) -> tf.Tensor:
        """Whether all ranks have the same number of examples."""
        return tf.equal(self._sums[1] * self.size, tf.square(self._sums[0]))

    def weight_by(self, number: tf.Tensor, what: str) -> tf.Tensor:
        """Return this rank's number divided by the mean over the ranks."""
        number = tf.cast(number, tf.float32)
        return tf.math.divide_no_nan(number * self.size, self.sum([number], what)[0])

    def scale_loss(self, loss: tf.Tensor) -> tf.Tensor:
        """Return a loss, the mean over this rank's examples or a number for each, times this rank's weight."""
        self.is_weighted = True
        self.check_loss(loss)
        # The gradient of several numbers is that of their sum. All ranks have the same numbers of a whole loss.
        weight = self.weight if self.has_whole_loss or self.is_whole(loss) else float(self.size)
        self.scaled.append(loss * tf.cast(weight, loss.dtype))
        return self.scaled[-1]

    def is_whole(self, values: tf.Tensor) -> bool:
        """Return whether values, such as one number, belong to the whole batch rather than to its examples."""
        if not values.shape.rank:
            return True
        rows = values.shape[0]
        return rows is not None and rows != self.number

    def part_of_mean(self, value: tf.Tensor) -> tf.Tensor:
        """Return what a rank's value adds to the sum that is ``size`` times the mean over the examples of all ranks."""
        value = value if value.dtype.is_floating else tf.cast(value, tf.float32)
        is_scaled = any(value is one for one in self.scaled)
        part = value if is_scaled else value * tf.cast(self.weight, value.dtype)
        return tf.where(self.is_empty, tf.zeros_like(part), part)  # the mean of no example is NaN

    def sum(self, values: list[tf.Tensor], what: str) -> list[tf.Tensor]:
        return operations.grouped_sum(values, f"xmc_tf/batch/{what}")

    def gather(self, values: Any) -> Any:
        """Return a structure of tensors (None and numbers are kept) with the rows of all ranks."""

        def of_all(one: Any) -> Any:
            if one is None or not one.shape.rank:
                return one
            return operations.gather_rows(one, self.size, 0, "xmc_tf/batch/rows").rows

        return tf.nest.map_structure(of_all, values)

    @property
    def _sums(self) -> tf.Tensor:
        """The number of examples and its square, summed over the ranks."""
        if self._over_ranks is None:
            (self._over_ranks,) = self.sum([tf.stack([self._examples, tf.square(self._examples)])], "examples")
        return self._over_ranks


_BATCH: ContextVar[BatchShare | None] = ContextVar("batch", default=None)


def current_batch() -> BatchShare | None:
    """Return this rank's share of the batch of the current training step, or None outside of steps."""
    return _BATCH.get()


def step_over(batch: BatchShare | None) -> AbstractContextManager[None]:
    return set_in_block(_BATCH, batch)
