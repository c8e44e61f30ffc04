"""What holds in a world of any size: training equals that of one process with everything in one piece."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests.collective.cases import draw_case
from tests.collective.reference import LazyReference
from xmc_tf import CollectiveStrategy
from xmc_tf.collective.lookup import lookup
from xmc_tf.common.errors import InputError

STEPS = 20
RATE = 0.05
SCALE = 0.05  # of the loss, so that momentum stays stable
KERAS = tf_keras.optimizers
# The reference's kind, Keras' optimizer, and what both are told.
KINDS = [
    ("sgd", KERAS.SGD, {}),
    ("momentum", KERAS.SGD, {"momentum": 0.9}),
    ("momentum", KERAS.SGD, {"momentum": 0.9, "nesterov": True}),
    ("adagrad", KERAS.Adagrad, {}),
    ("adam", KERAS.Adam, {}),
    ("adam", KERAS.AdamW, {"weight_decay": 0.01}),
]


class Training:
    """A table and a replicated matrix, trained to bring ``rows @ matrix`` near ``targets``."""

    def __init__(self, world, number, seed=0):
        self.world, self.case = world, draw_case(number, world.size, "flat")
        rng = np.random.default_rng([number, seed])
        rows, self.dim = self.case.values.shape
        self.matrix = rng.normal(size=(self.dim, 2)).astype(np.float32)
        # Other ids in every step; on some ranks, in some steps, none.
        self.batches = [
            [rng.integers(0, rows, rng.integers(0, 6) if (step + rank) % 4 else 0) for rank in range(world.size)]
            for step in range(STEPS)
        ]
        self.targets = [[rng.normal(size=(len(ids), 2)) for ids in step] for step in self.batches]

    def gradients(self, values, matrix, step):
        """Of the mean of the ranks' losses, and which rows were touched."""
        of_values, of_matrix, touched = np.zeros(values.shape), np.zeros(matrix.shape), set()
        for ids, targets in zip(self.batches[step], self.targets[step], strict=True):
            difference = SCALE * (values[ids] @ matrix - targets)
            np.add.at(of_values, ids, 2 * difference @ matrix.T / self.world.size)
            of_matrix += 2 * values[ids].T @ difference / self.world.size
            touched |= set(ids.tolist())
        return of_values, of_matrix, np.array(sorted(touched), np.int64)

    def ours(self, optimizer, table, matrix, steps=STEPS, each=None):
        """Trains; ``each`` is called with the number of every step when it is done."""

        @tf.function(input_signature=[tf.TensorSpec([None], tf.int64), tf.TensorSpec([None, 2])])
        def train_step(ids, targets):
            with tf.GradientTape() as tape:
                loss = SCALE * tf.reduce_sum(tf.square(lookup(table, ids) @ matrix - targets))
                loss = optimizer.get_scaled_loss(loss)
            unused = tf.constant(0.0)  # as a pooler's weights, whose gradient is None
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
        """The same in one piece, in numpy: the values of table and matrix after every step."""
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
        """Trains with ``optimizer`` and compares after every step."""
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
    """Every shard counts once, and what is replicated counts once."""
    strategy = CollectiveStrategy(world)
    training = Training(world, 3)
    optimizer = strategy.optimizer(KERAS.SGD(RATE, global_clipnorm=0.7))
    training.compare(optimizer, training.dense("sgd", {}, limit=0.7))


def check_learning_rate_schedules(world):
    """The rate is the given one, on tables too, and is not multiplied by the number of workers."""
    strategy = CollectiveStrategy(world)
    schedule = KERAS.schedules.PiecewiseConstantDecay([1, 3], [0.5, 0.25, 0.0])
    table = strategy.table(f"scheduled_{world.size}", 3, 1, "zeros")
    optimizer, moved = strategy.optimizer(KERAS.SGD(schedule)), []
    for _ in range(6):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(lookup(table, [0]))
        optimizer.apply_gradients([(tape.gradient(loss, table.variable), table.variable)])
        moved.append(float(lookup(table, [0])[0, 0]))
    assert moved == [-0.5, -1.0, -1.25, -1.5, -1.5, -1.5]
    assert int(optimizer.iterations) == 6
    assert np.count_nonzero(table.variable) == (table.start == 0 < table.local_rows)


def check_accumulation(world):
    """Four batches added up make the step of their mean."""
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
    """A scale changes nothing; an overflow on one rank makes all of them leave out the step and halve it."""
    strategy = CollectiveStrategy(world)
    training = Training(world, 3)
    training.compare(strategy.optimizer(KERAS.Adam(RATE), loss_scale=1024.0), training.dense("adam", {}))

    table = strategy.table(f"overflow_{world.size}", 3, 2, "ones")
    weight = tf.Variable([1.0])
    optimizer = strategy.optimizer(KERAS.SGD(RATE), loss_scale="dynamic")
    for bad in (False, True, False):
        before = float(optimizer.loss_scale.value), int(optimizer.iterations), table.variable.numpy(), weight.numpy()
        with tf.GradientTape() as tape:
            # The last rank's rows overflow; nobody else sees an infinity of its own.
            factor = np.inf if bad and world.rank == world.size - 1 else 1.0
            loss = tf.reduce_sum(lookup(table, [2])) * factor + tf.reduce_sum(weight)
            loss = optimizer.get_scaled_loss(loss)
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


def check_replicas_stay_equal(world):
    """Bitwise, after 50 steps; and where they do not, it is said on all ranks, and by name."""
    strategy = CollectiveStrategy(world, shard_above=0)
    tf_keras.utils.set_random_seed(world.rank)  # as if nobody had thought of seeds
    with strategy.scope():
        with strategy.embedding_scope():
            words = tf_keras.layers.Embedding(50, 4, input_length=3)
        model = tf_keras.Sequential([words, tf_keras.layers.Flatten(), tf_keras.layers.Dense(3, "tanh")])
        model.add(tf_keras.layers.Dense(1))
        model.compile(KERAS.Adam(0.01), "mse", steps_per_execution=5)
    rng = np.random.default_rng(world.rank)
    data = rng.integers(0, 50, (200, 3)), rng.normal(size=200)
    model.fit(*data, batch_size=4, epochs=1, shuffle=False, verbose=0)
    assert int(model.optimizer.iterations) == 50
    assert strategy.check_replicas(model.trainable_variables) == 4
    assert words.embeddings.shape == [words.table.local_rows, 4]
    astray = tf.Variable(float(world.rank == world.size - 1), name="astray")
    if world.size > 1:
        with pytest.raises(InputError, match=rf"1 of 5 .*\n.*astray.*: on ranks \[{world.size - 1}\]"):
            strategy.check_replicas([*model.trainable_variables, astray])


def check_fit_equals_one_process(world):
    """``fit`` over the ranks' parts is ``fit`` over the whole, sharded and replicated embeddings alike."""
    tf_keras.utils.set_random_seed(3)
    rng = np.random.default_rng(0)
    batch, batches = 4 * world.size, 6
    words, tags = rng.integers(0, 40, (batch * batches, 3)), rng.integers(0, 5, (batch * batches, 2))
    targets = rng.normal(size=batch * batches)

    def make(strategy):
        first = rng_values((40, 4), 1), rng_values((5, 4), 2)
        a, b = (tf_keras.Input([count], dtype="int64") for count in (3, 2))
        embeddings = [
            tf_keras.layers.Embedding(40, 4, embeddings_initializer=tf_keras.initializers.Constant(0.1), name="words"),
            tf_keras.layers.Embedding(5, 4, embeddings_initializer=tf_keras.initializers.Constant(0.2), name="tags"),
        ]
        mixed = tf_keras.layers.Concatenate(axis=1)([embeddings[0](a), embeddings[1](b)])
        out = tf_keras.layers.Dense(1, kernel_initializer=tf_keras.initializers.Constant(first[0][:1, :1].item()))
        model = tf_keras.Model([a, b], out(tf_keras.layers.Flatten()(mixed)))
        model.compile(KERAS.SGD(0.1), "mse")
        return model, embeddings

    def rng_values(shape, seed):
        return np.random.default_rng(seed).normal(size=shape).astype(np.float32)

    whole, (whole_words, whole_tags) = make(None)
    whole.fit([words, tags], targets, batch_size=batch, epochs=2, shuffle=False, verbose=0)

    strategy = CollectiveStrategy(world, shard_above=200)
    with strategy.scope(), strategy.embedding_scope():
        model, (our_words, our_tags) = make(strategy)
    assert type(our_words).__name__ == "ShardedEmbedding"
    assert type(our_tags) is tf_keras.layers.Embedding
    mine = np.arange(batch * batches).reshape(batches, world.size, 4)[:, world.rank].reshape(-1)
    model.fit([words[mine], tags[mine]], targets[mine], batch_size=4, epochs=2, shuffle=False, verbose=0)

    start, count = our_words.table.start, our_words.table.local_rows
    np.testing.assert_allclose(our_words.embeddings, whole_words.embeddings[start : start + count], atol=1e-5)
    np.testing.assert_allclose(our_tags.embeddings, whole_tags.embeddings, atol=1e-5)
    np.testing.assert_allclose(
        model.predict([words, tags], verbose=0), whole.predict([words, tags], verbose=0), atol=1e-5
    )
    assert strategy.check_replicas(model.trainable_variables) == 3


def check_mixed_precision_fit(world):
    """Keras' own loss scaling is taken over, so that an overflow anywhere is everybody's."""
    tf_keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        strategy = CollectiveStrategy(world, shard_above=0)
        with strategy.scope():
            with strategy.embedding_scope(wire="fp16"):
                words = tf_keras.layers.Embedding(30, 4, input_length=2)
            model = tf_keras.Sequential([words, tf_keras.layers.Flatten(), tf_keras.layers.Dense(1, dtype="float32")])
            model.compile(KERAS.Adam(0.01), "mse")
        rng = np.random.default_rng(world.rank)
        history = model.fit(rng.integers(0, 30, (60, 2)), rng.normal(size=60), batch_size=6, epochs=3, verbose=0)
    finally:
        tf_keras.mixed_precision.set_global_policy("float32")
    assert type(model.optimizer).__name__ == "CollectiveOptimizer"
    assert float(model.optimizer.loss_scale.value) >= 1.0
    assert history.history["loss"][-1] < history.history["loss"][0]
    assert words.compute_dtype == "float16"
    assert strategy.check_replicas(model.trainable_variables) == 2


def check_first_values_come_from_the_first_rank(world):
    """What is made in ``scope()`` is the same everywhere at once, in loops without graphs too."""
    strategy = CollectiveStrategy(world)
    tf.random.set_seed(world.rank)
    with strategy.scope():
        dense = tf_keras.layers.Dense(2)
        dense.build([None, 3])
        table = strategy.table("own", 10, 2)
    assert strategy.check_replicas(dense.weights) == 2
    whole = np.concatenate(world.allgather(table.variable.numpy()))
    alone = CollectiveStrategy(_Alone()).table("own", 10, 2).variable.numpy()
    np.testing.assert_array_equal(whole, alone)


class _Alone:
    rank, size, local_rank = 0, 1, 0
