"""Losses of the label head: separable over (document, candidate) pairs, so that a row's owner can take them.

A document's loss is the mean over its candidates for the hinges and the sum for cross-entropy; a step's loss is the
sum of its documents' losses, divided by the number of documents in the global batch.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import tensorflow as tf

from xmc_tf.common.errors import InputError
from xmc_tf.params.choices import LOSSES

if TYPE_CHECKING:
    from xmc_tf.collective.tables.pairs import PairLoss

MARGIN = 1.0


@dataclass(frozen=True)
class HeadLoss:
    """One of the losses by its name in the parameters.

    Example:
        >>> loss = head_loss("weighted-squared-hinge")
        >>> loss.of_pairs(tf.constant([0.5, 0.5]), tf.constant([1.0, 0.0]))     # [0.25, 2.25]

    Args:
        of_pairs: scores and targets (0 or 1) to losses, element by element.
        weighted: whether a positive counts by its weight.
        mean: whether a document's loss is the mean over its candidates rather than their sum.
    """

    of_pairs: "PairLoss"
    weighted: bool = False
    mean: bool = True


def head_loss(name: str) -> HeadLoss:
    """The loss of that name."""
    if name not in _LOSSES:
        raise InputError("loss_function", expected=f"one of {', '.join(LOSSES)}", received=repr(name))
    return _LOSSES[name]


def hinge(scores: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """How far a score stays below the margin on its side."""
    return tf.nn.relu(MARGIN - (2.0 * targets - 1.0) * scores)


def squared_hinge(scores: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """The same squared: smooth where the margin is reached."""
    return tf.square(hinge(scores, targets))


def cross_entropy(scores: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Of every candidate by itself, scores being the logarithms of odds."""
    return tf.nn.sigmoid_cross_entropy_with_logits(labels=targets, logits=scores)


_LOSSES = {
    "hinge": HeadLoss(hinge),
    "squared-hinge": HeadLoss(squared_hinge),
    "weighted-hinge": HeadLoss(hinge, weighted=True),
    "weighted-squared-hinge": HeadLoss(squared_hinge, weighted=True),
    "cross-entropy": HeadLoss(cross_entropy, mean=False),
}
