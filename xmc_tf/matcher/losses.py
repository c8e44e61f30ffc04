"""Losses of the label head: sums over (document, candidate) pairs, so that each rank can compute those of its rows.

A document's loss is the mean over its candidates for the hinges, and the sum for cross-entropy. A step's loss is
the sum of its documents' losses, divided by the number of documents in the global batch.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import tensorflow as tf

if TYPE_CHECKING:
    from xmc_tf.collective.tables.pairs import PairLoss

MARGIN = 1.0


@dataclass(frozen=True)
class HeadLoss:
    """A loss function of the label head."""

    of_pairs: "PairLoss"  # maps scores and targets (0 or 1) to losses, element by element
    weighted: bool = False  # multiply the loss of a positive by its weight
    mean: bool = True  # divide a document's loss by the number of its candidates


def head_loss(name: str) -> HeadLoss:
    return _LOSSES[name]


def hinge(scores: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Return the distance by which a score misses the margin on its side."""
    return tf.nn.relu(MARGIN - (2.0 * targets - 1.0) * scores)


def squared_hinge(scores: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Return the squared hinge, which is smooth at the margin."""
    return tf.square(hinge(scores, targets))


def cross_entropy(scores: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Return the cross-entropy of each candidate; scores are logits."""
    return tf.nn.sigmoid_cross_entropy_with_logits(labels=targets, logits=scores)


_LOSSES = {
    "hinge": HeadLoss(hinge),
    "squared-hinge": HeadLoss(squared_hinge),
    "weighted-hinge": HeadLoss(hinge, weighted=True),
    "weighted-squared-hinge": HeadLoss(squared_hinge, weighted=True),
    "cross-entropy": HeadLoss(cross_entropy, mean=False),
}
