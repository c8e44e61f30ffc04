"""Checks on any number of ranks: steps of each optimizer equal those over an unsharded table."""

import keras
import numpy as np
import tensorflow as tf

from tests.collective.cases import draw_case
from tests.collective.reference import LazyReference
from xmc_tf import CollectiveStrategy
from xmc_tf.collective.tables.lookup import lookup

STEPS = 20
RATE = 0.05
SCALE = 0.05  # scale of the loss, so that momentum stays stable
KERAS = keras.optimizers
# The reference's kind, the Keras optimizer, and the options of both.
KINDS = [
    ("sgd", KERAS.SGD, {}),
    ("momentum", KERAS.SGD, {"momentum": 0.9}),
    ("momentum", KERAS.SGD, {"momentum": 0.9, "nesterov": True}),
    ("adagrad", KERAS.Adagrad, {}),
    ("adam", KERAS.Adam, {}),
    ("adam", KERAS.AdamW, {"weight_decay": 0.01}),
]


class Training:
    """A table and a replicated matrix, trained so that ``rows @ matrix`` approximates ``targets``."""

    def __init__(self, world, number, seed=0):
        self.world, self.case = world, draw_case(number, world.size, "flat")
        rng = np.random.default_rng([number, seed])
        rows, self.dim = self.case.values.shape
        self.matrix = rng.normal(size=(self.dim, 2)).astype(np.float32)
        # New ids in each step; some ranks have none in some steps.
        self.batches = [
            [rng.integers(0, rows, rng.integers(0, 6) if (step + rank) % 4 else 0) for rank in range(world.size)]
            for step in range(STEPS)
        ]
        self.targets = [[rng.normal(size=(len(ids), 2)) for ids in step] for step in self.batches]

    def gradients(self, values, matrix, step):
        """Return the gradients of the mean of the ranks' losses, and the touched rows."""
        of_values, of_matrix, touched = np.zeros(values.shape), np.zeros(matrix.shape), set()
        for ids, targets in zip(self.batches[step], self.targets[step], strict=True):
            difference = SCALE * (values[ids] @ matrix - targets)
            np.add.at(of_values, ids, 2 * difference @ matrix.T / self.world.size)
            of_matrix += 2 * values[ids].T @ difference / self.world.size
            touched |= set(ids.tolist())
        return of_values, of_matrix, np.array(sorted(touched), np.int64)

    def ours(self, optimizer, table, matrix, steps=STEPS, each=None):
        """Train; call ``each`` with the number of each finished step."""

        @tf.function(input_signature=[tf.TensorSpec([None], tf.int64), tf.TensorSpec([None, 2])])
        def train_step(ids, targets):
            with tf.GradientTape() as tape:
                loss = SCALE * tf.reduce_sum(tf.square(lookup(table, ids) @ matrix - targets))
                loss = optimizer.scale_loss(loss)
            unused = tf.constant(0.0)  # without a gradient, like a pooler's weights
            variables = [table.variable, matrix]
            gradients = tape.gradient(loss, variables)
            optimizer.apply_gradients(zip(gradients, variables, strict=True))
            return unused

        for step in range(steps):
            ids, targets = self.batches[step][self.world.rank], self.targets[step][self.world.rank]
            train_step(tf.constant(ids, tf.int64), tf.constant(targets, tf.float32))
            if each is not None:
                each(step)

    def dense(self, kind, options, limit=None, steps=STEPS):
        """Return the values of the unsharded table and matrix after each step, computed in numpy."""
        table = LazyReference(kind, self.case.values, RATE, **options)
        matrix = LazyReference(kind, self.matrix, RATE, **options)
        after = []
        for step in range(steps):
            of_values, of_matrix, touched = self.gradients(table.values, matrix.values, step)
            norm = np.sqrt((of_values**2).sum() + (of_matrix**2).sum())
            shrink = limit / max(norm, limit) if limit else 1.0
            table.step(of_values * shrink, touched)
            matrix.step(of_matrix * shrink, np.arange(self.dim))
            after.append((table.values.copy(), matrix.values.copy()))
        return after

    def compare(self, optimizer, wanted):
        """Train with ``optimizer`` and compare after each step."""
        table, matrix = self.case.table(self.world.rank), tf.Variable(self.matrix)

        def same(step):
            values, other = wanted[step]
            np.testing.assert_allclose(table.variable, self.case.share(values, table), rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(matrix, other, rtol=1e-5, atol=1e-5)

        self.ours(optimizer, table, matrix, each=same)
        return table


def check_optimizers(world):
    strategy = CollectiveStrategy(world)
    for number, (kind, make, options) in enumerate(KINDS):
        training = Training(world, number + 1)
        table = training.compare(strategy.optimizer(make(RATE, **options)), training.dense(kind, options))
        assert all(slot.shape == table.variable.shape for slot in table.slots.values())


def check_one_norm_over_all(world):
    """Each shard and each replicated variable counts once."""
    strategy = CollectiveStrategy(world)
    training = Training(world, 3)
    optimizer = strategy.optimizer(KERAS.SGD(RATE, global_clipnorm=0.7))
    training.compare(optimizer, training.dense("sgd", {}, limit=0.7))


def check_accumulation(world):
    """A step over four accumulated batches equals a step with their mean."""
    strategy = CollectiveStrategy(world)
    training = Training(world, 7)
    table, matrix = training.case.table(world.rank), tf.Variable(training.matrix)
    training.ours(strategy.optimizer(KERAS.Adagrad(RATE), accumulate=4), table, matrix)
    dense, other = LazyReference("adagrad", training.case.values, RATE), LazyReference("adagrad", training.matrix, RATE)
    for first in range(0, STEPS, 4):
        parts = [training.gradients(dense.values, other.values, step) for step in range(first, first + 4)]
        touched = np.unique(np.concatenate([part[2] for part in parts]))
        dense.step(sum(part[0] for part in parts) / 4, touched)
        other.step(sum(part[1] for part in parts) / 4, np.arange(training.dim))
    np.testing.assert_allclose(table.variable, training.case.share(dense.values, table), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(matrix, other.values, rtol=1e-5, atol=1e-5)


def check_loss_scale(world):
    """A scale changes nothing; after an overflow on one rank, all ranks skip the step and halve the scale."""
    strategy = CollectiveStrategy(world)
    training = Training(world, 3)
    training.compare(strategy.optimizer(KERAS.Adam(RATE), loss_scale=1024.0), training.dense("adam", {}))

    table = strategy.table(f"overflow_{world.size}", 3, 2, "ones")
    weight = tf.Variable([1.0])
    optimizer = strategy.optimizer(KERAS.SGD(RATE), loss_scale="dynamic")
    for bad in (False, True, False):
        before = float(optimizer.loss_scale.value), int(optimizer.iterations), table.variable.numpy(), weight.numpy()
        with tf.GradientTape() as tape:
            # Only the last rank's rows overflow.
            factor = np.inf if bad and world.rank == world.size - 1 else 1.0
            loss = tf.reduce_sum(lookup(table, [2])) * factor + tf.reduce_sum(weight)
            loss = optimizer.scale_loss(loss)
        variables = [table.variable, weight]
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        scale, steps = float(optimizer.loss_scale.value), int(optimizer.iterations)
        assert scale == (before[0] / 2 if bad else before[0])
        assert steps == before[1] + (not bad)
        if bad:
            np.testing.assert_array_equal(table.variable, before[2])
            np.testing.assert_array_equal(weight, before[3])
        else:
            np.testing.assert_allclose(weight, before[3] - RATE, rtol=1e-6)
        assert len(set(world.allgather((scale, steps)))) == 1
