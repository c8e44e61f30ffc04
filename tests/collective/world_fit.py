"""Checks on any number of ranks: Keras models train over all ranks, and replicas stay equal."""

import logging

import keras
import numpy as np
import pytest
import tensorflow as tf

from xmc_tf import CollectiveStrategy
from xmc_tf.common.errors import InputError
from xmc_tf.ranks.solo import Solo


def check_replicas_stay_equal(world):
    """Replicas are bitwise equal after 50 steps; a difference is reported on all ranks with the variable's name."""
    strategy = CollectiveStrategy(world, shard_above=0)
    keras.utils.set_random_seed(world.rank)  # a different seed on each rank
    with strategy.scope():
        with strategy.embedding_scope():
            words = keras.layers.Embedding(50, 4, input_length=3)
        model = keras.Sequential([words, keras.layers.Flatten(), keras.layers.Dense(3, "tanh")])
        model.add(keras.layers.Dense(1))
        model.compile(keras.optimizers.Adam(0.01), "mse", steps_per_execution=5)
    rng = np.random.default_rng(world.rank)
    data = rng.integers(0, 50, (200, 3)), rng.normal(size=200)
    model.fit(*data, batch_size=4, epochs=1, shuffle=False, verbose=0)
    assert int(model.optimizer.iterations) == 50
    assert strategy.check_replicas(model.trainable_variables) == 4
    assert words.table.variable.shape == [words.table.local_rows, 4]
    astray = tf.Variable(float(world.rank == world.size - 1), name="astray")
    if world.size > 1:
        with pytest.raises(InputError, match=rf"1 of 5 .*\n.*astray.*: on ranks \[{world.size - 1}\]"):
            strategy.check_replicas([*model.trainable_variables, astray])


def check_mixed_precision_fit(world):
    """Keras' loss scaling is replaced, so that an overflow on one rank counts on all."""
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        strategy = CollectiveStrategy(world, shard_above=0)
        with strategy.scope():
            with strategy.embedding_scope(wire="fp16"):
                words = keras.layers.Embedding(30, 4, input_length=2)
            model = keras.Sequential([words, keras.layers.Flatten(), keras.layers.Dense(1, dtype="float32")])
            model.compile(keras.optimizers.Adam(0.01), "mse")
        rng = np.random.default_rng(world.rank)
        history = model.fit(rng.integers(0, 30, (60, 2)), rng.normal(size=60), batch_size=6, epochs=3, verbose=0)
    finally:
        keras.mixed_precision.set_global_policy("float32")
    assert type(model.optimizer).__name__ == "CollectiveOptimizer"
    assert float(model.optimizer.loss_scale.value) >= 1.0
    assert history.history["loss"][-1] < history.history["loss"][0]
    assert words.compute_dtype == "float16"
    assert strategy.check_replicas(model.trainable_variables) == 2


def check_each_model_warns(world):
    """A warning is logged once for a model, and again for another one of the same names."""
    strategy, said = CollectiveStrategy(world), []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    logging.getLogger("xmc_tf").addHandler(handler)
    for _ in range(2):
        keras.utils.clear_session()
        with strategy.scope():
            inputs = keras.Input([2])
            model = keras.Model(inputs, WithSum(name="with_sum")(keras.layers.Dense(1)(inputs)))
            model.compile("sgd", "mse")
        for _ in range(2):
            model.fit(np.ones([4, 2]), np.ones(4), batch_size=2, verbose=0)
    logging.getLogger("xmc_tf").removeHandler(handler)
    assert len([line for line in said if "layer 'with_sum'" in line]) == (2 if world.size > 1 and not world.rank else 0)


class WithSum(keras.layers.Layer):
    def call(self, inputs):
        self.add_loss(tf.reduce_sum(inputs))
        return inputs


def check_initial_values_come_from_rank_0(world):
    """Variables made in ``scope()`` are equal on all ranks at once, also without graphs."""
    strategy = CollectiveStrategy(world)
    tf.random.set_seed(world.rank)
    with strategy.scope():
        dense = keras.layers.Dense(2)
        dense.build([None, 3])
        table = strategy.table("own", 10, 2)
    assert strategy.check_replicas(dense.weights) == 2
    whole = np.concatenate(world.allgather(table.variable.numpy()))
    alone = CollectiveStrategy(Solo()).table("own", 10, 2).variable.numpy()
    np.testing.assert_array_equal(whole, alone)
