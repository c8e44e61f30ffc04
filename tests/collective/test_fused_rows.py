"""Rows that are updated while their gradients are computed: rounding, independence of blocks, finite differences."""

import numpy as np
import pytest
import tensorflow as tf

from xmc_tf.collective.tables.full_table_loss import InPlaceAdam, RowStep, rounded_stochastically
from xmc_tf.collective.tables.table import make_table


def _loss(scores, targets, weights):
    return weights * tf.nn.sigmoid_cross_entropy_with_logits(labels=targets, logits=scores)


def _rounded(values, first=0, step=1):
    return tf.cast(
        rounded_stochastically(tf.constant(values), tf.constant(first), tf.constant(step, tf.uint32)), tf.float32
    )


def test_values_are_rounded_to_a_neighbour_and_right_in_the_mean():
    values = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
    below = (values.view(np.uint32) & 0xFFFF0000).view(np.float32)
    above = ((values.view(np.uint32) & 0xFFFF0000) + 0x10000).view(np.float32)
    rounded = np.stack([_rounded(values, step=step).numpy() for step in range(1, 401)])
    assert ((rounded == below) | (rounded == above)).all()
    up = (rounded == above).mean(axis=0)
    share = (values - below) / (above - below)
    # Each share is of 400 draws: three standard deviations of most, five of all.
    error = np.abs(up - share) / np.sqrt(share * (1 - share) / 400 + 1e-4)
    assert (error < 3).mean() > 0.97
    assert error.max() < 5
    # Neighbours are rounded independently of each other.
    noise = (rounded - values) / (above - below)
    assert np.abs(np.corrcoef(noise.reshape(400, -1)[:, :40].T) - np.eye(40)).max() < 0.25


def test_exact_values_are_kept():
    values = np.array([[0.0, 1.0, -2.5, 0.0078125, -3e38]], np.float32)
    values = tf.cast(tf.cast(values, tf.bfloat16), tf.float32).numpy()
    for step in range(1, 20):
        np.testing.assert_array_equal(_rounded(values, step=step), values)


def test_rounding_depends_on_the_row_alone():
    values = np.random.default_rng(1).normal(size=(30, 5)).astype(np.float32)
    np.testing.assert_array_equal(_rounded(values)[20:], _rounded(values[20:], first=20))


def _trained(rows_at_once):
    values = np.random.default_rng(3).normal(size=(41, 6)).astype(np.float32)
    table = make_table("rows", 41, 6, initializer=values, trainable=False, dtype=tf.bfloat16)
    trainer = InPlaceAdam(table, rows_at_once=rows_at_once)
    vectors = tf.constant(np.random.default_rng(4).normal(size=(5, 6)).astype(np.float32))
    positives = tf.ragged.constant([[0, 40], [7], [], [3, 20, 21], [11]], dtype=tf.int64)
    for number in (1, 2):
        trainer.losses(vectors, positives, _loss, step=RowStep(tf.constant(number), 0.01, 0.2))
    return tf.cast(table.variable, tf.float32)


@pytest.mark.parametrize("rows_at_once", [1, 7, 1000])
def test_updates_do_not_depend_on_blocks(rows_at_once):
    np.testing.assert_array_equal(_trained(rows_at_once), _trained(10))
