"""Checks on any number of ranks: steps of Keras models are those of plain Keras on the batch of all ranks."""

import logging
import os
from itertools import product

import keras
import numpy as np
import pytest
import tensorflow as tf

from xmc_tf import CollectiveStrategy
from xmc_tf.collective.batches import BatchShare
from xmc_tf.collective.optimizers import keras_optimizer as optimizers
from xmc_tf.common.errors import InputError

EXAMPLES = int(os.environ.get("XMC_TF_TEST_EXAMPLES", "6"))  # of a batch, over all ranks


def splits(size):
    """Return the ways to divide a last batch among the ranks, the largest part first."""
    ways = product(range(EXAMPLES // size, -1, -1), repeat=size)
    return [parts for parts in ways if any(parts) and list(parts) == sorted(parts, reverse=True)]


def check_each_split_of_a_batch(world):
    """A rank's weight is that of the current batch, also if another rank traces again and this one does not."""
    traced = 0
    for parts in splits(world.size):

        @tf.function(reduce_retracing=True, autograph=False)
        def weight(batch):
            nonlocal traced
            traced += 1
            share = BatchShare(tf.shape(batch)[0], world.size)
            return share.weight, share.is_even

        for of_ranks in ([EXAMPLES // world.size] * world.size, parts, parts[::-1]):
            batch = tf.zeros([of_ranks[world.rank], 2])
            expected = of_ranks[world.rank] * world.size / sum(of_ranks)
            for one, is_even in (weight(batch), weight.python_function(batch)):
                np.testing.assert_allclose(one, expected, rtol=1e-6, err_msg=str(of_ranks))
                assert bool(is_even) == (len(set(of_ranks)) == 1)
    assert traced > len(splits(world.size))


def check_layers_adapted_to_different_data_are_refused(world):
    with CollectiveStrategy(world).scope():
        model = keras.Sequential([keras.Input([3]), keras.layers.Normalization(), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1), "mse")
    model.layers[0].adapt(np.full((2, 3), world.rank))
    before = model.get_weights()
    with pytest.raises(InputError, match=r"1 of . replicated variables(.|\n)*adapt its layers to the same data"):
        model.fit(np.ones((3, 3)), np.ones((3, 1)), verbose=0)
    np.testing.assert_array_equal(model.get_weights()[-1], before[-1])


def check_states_that_differ_after_an_epoch_are_refused(world):
    class Counting(keras.layers.Layer):
        def build(self, shape):
            self.seen = self.add_weight(shape=(), dtype="int32", initializer="zeros", trainable=False)

        def call(self, inputs, training=False):
            if training:
                self.seen.assign_add(keras.ops.shape(inputs)[0])
            return inputs

    with CollectiveStrategy(world).scope():
        model = keras.Sequential([keras.Input([3]), Counting(), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1), "mse")
    examples = 3 + (world.rank == 0)  # after the first batch, the states are equal
    with pytest.raises(InputError, match=r"1 of . replicated variables"):
        model.fit(np.ones((examples, 3)), np.ones((examples, 1)), batch_size=3, verbose=0)


class ClippedStep(keras.Sequential):
    """Clips the gradients of its own examples if ``clip`` is true."""

    clip = True

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=data[1], y_pred=self(data[0], training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        if self.clip:
            gradients = [tf.clip_by_norm(gradient, 0.1) for gradient in gradients]
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss}


def check_changed_gradients_are_warned_of_once_by_the_first_rank(world):
    for clip in (False, True):
        said = []
        handler = logging.Handler()
        handler.emit = lambda record, said=said: said.append(record.getMessage())
        optimizers.log.addHandler(handler)
        try:
            with CollectiveStrategy(world).scope():
                model = ClippedStep([keras.Input([3]), keras.layers.Dense(1)])
                model.clip = clip
                model.compile(keras.optimizers.SGD(0.1), "mse")
            model.fit(np.ones((6, 3)), np.ones((6, 1)), batch_size=3, verbose=0)
        finally:
            optimizers.log.removeHandler(handler)
        warned = clip and world.size > 1 and world.rank == 0
        assert len(said) == warned, said
        assert all("train_step changes the gradients" in line for line in said)
