"""Checks on any number of ranks: programs of TensorFlow 1, with graphs and sessions, train as in one process."""

import contextlib
import tempfile

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from xmc_tf import CollectiveStrategy
from xmc_tf.common.errors import InputError
from xmc_tf.ranks.solo import Solo

ROWS, WIDTH, STEPS = 50, 3, 4


def batches(world):
    """Return ids and targets of all ranks, by step."""
    draw = np.random.default_rng(0)
    return draw.integers(0, ROWS, (STEPS, world.size, 6)), draw.normal(size=(STEPS, world.size, 6)).astype(np.float32)


def model(strategy, initializer, partitioner, optimizer):
    """Return placeholders, the loss, the step and predictions of a program of TensorFlow 1."""
    ids, targets = tf.placeholder(tf.int64, [None]), tf.placeholder(tf.float32, [None])
    with strategy.embedding_scope(), tf.variable_scope("embedding", partitioner=partitioner):
        table = tf.get_variable("table", shape=(ROWS, WIDTH), initializer=initializer)
        with tf.variable_scope(tf.get_variable_scope(), reuse=True):
            assert tf.get_variable("table", shape=(ROWS, WIDTH)) is table
    rows = tf.nn.embedding_lookup(table, ids)
    bags = tf.SparseTensor([[0, 0], [0, 1], [1, 0]], tf.constant([3, 4, ROWS - 1], tf.int64), [2, 2])
    of_bags = tf.nn.embedding_lookup_sparse(table, bags, None, combiner="sum")
    # Without a seed, the ranks draw other values.
    weights = tf.get_variable("weights", [WIDTH, 1], initializer=tf.random_normal_initializer(seed=None))
    bias = tf.Variable(tf.zeros([1]), name="bias")
    scores = tf.reshape(tf.matmul(rows, weights), [-1]) + bias
    loss = tf.reduce_mean(tf.square(scores - targets)) + 0.1 * tf.reduce_mean(tf.square(of_bags))
    step = tf.train.get_or_create_global_step()
    gradients = optimizer().compute_gradients(loss)
    return ids, targets, table, loss, rows, weights, gradients, step


def trained(strategy, world, feeds, scope, optimizer, weights=None):
    """Return the losses of this rank, its last rows and the weights; start with ``weights``, or return the first."""
    partitioner = tf.fixed_size_partitioner(world.size) if scope else None
    with strategy.scope() if scope else contextlib.nullcontext(), tf.Graph().as_default():
        values = np.random.default_rng(1).normal(size=(ROWS, WIDTH)).astype(np.float32)
        parts = model(strategy, tf.constant_initializer(values), partitioner, optimizer)
        ids, targets, _, loss, rows, kernel, gradients, step = parts
        made = optimizer()
        train = made.apply_gradients(gradients, global_step=step)
        with tf.train.MonitoredTrainingSession("") as session:
            if weights is not None:
                kernel.load(weights, session._tf_sess())
            first = session.run(kernel, {ids: [0], targets: [0.0]})
            losses = [session.run([loss, train], {ids: one, targets: two})[0] for one, two in feeds]
            every = session.run(rows, {ids: np.arange(ROWS), targets: np.zeros(ROWS)})
            return losses, every, first, session.run(step)


def check_a_session_trains_as_in_one_process(world):
    """Losses are equal with optimizers of TensorFlow 1; weights without a seed start with those of rank 0."""
    strategy = CollectiveStrategy(world)
    ids, targets = batches(world)
    for optimizer in (
        lambda: tf.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01, l2_regularization_strength=0.01),
        lambda: tf.train.AdagradOptimizer(0.1),
    ):
        mine = list(zip(ids[:, world.rank], targets[:, world.rank], strict=True))
        losses, rows, weights, step = trained(strategy, world, mine, True, optimizer)
        assert all(np.array_equal(one, weights) for one in world.allgather(weights))
        whole = list(zip(ids.reshape(STEPS, -1), targets.reshape(STEPS, -1), strict=True))
        expected, every, _, _ = trained(strategy, world, whole, False, optimizer, weights)
        np.testing.assert_allclose(np.mean(world.allgather(np.array(losses)), axis=0), expected, rtol=1e-4)
        np.testing.assert_allclose(rows, every, atol=1e-5)
        assert step == STEPS
        assert np.abs(every - np.random.default_rng(1).normal(size=every.shape)).max() > 1e-2


def check_initial_values_of_a_graph_do_not_depend_on_the_ranks(world):
    """``get_variable`` and ``strategy.variable`` start with the same rows on any number of ranks."""
    found = {}
    for name, communicator in (("alone", Solo()), ("ranks", world)):
        strategy = CollectiveStrategy(communicator, shard_above=0)
        for initializer in (
            None,
            tf.random_uniform_initializer(-0.1, 0.1),
            tf.variance_scaling_initializer(),
            np.eye(ROWS, WIDTH, dtype=np.float32),
            lambda shape, dtype: tf.ones(shape, dtype) * tf.range(ROWS, dtype=dtype)[:, None],
        ):
            with strategy.scope(), tf.Graph().as_default(), tf.Session() as session:
                with strategy.embedding_scope():
                    table = tf.get_variable("table", shape=(ROWS, WIDTH), initializer=initializer)
                    other = strategy.variable("other", (ROWS, WIDTH))
                small = strategy.variable("small", (3,), "ones")
                rows = tf.nn.embedding_lookup(table, tf.range(ROWS)), strategy.lookup(other, tf.range(ROWS)), small
                session.run(tf.global_variables_initializer())
                found.setdefault(name, []).append(session.run(rows))
    for alone, ranks in zip(found["alone"], found["ranks"], strict=True):
        for one, two in zip(alone, ranks, strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-6)
            assert np.std(one) > 0 or one.tolist() == [1.0] * 3


def check_what_a_graph_would_do_with_a_part_of_a_table_is_refused(world):
    """Errors name the call that works over the ranks."""
    strategy = CollectiveStrategy(world)
    with pytest.raises(InputError, match=r"model_fn(.|\n)*removed(.|\n)*make_model"):
        strategy.estimator(model_fn=print, model_dir="./", config=None)
    if world.size == 1:
        return
    with strategy.scope(), tf.Graph().as_default():
        with strategy.embedding_scope():
            small = tf.get_variable("small", (5, 2))
            table = tf.get_variable("table", (ROWS, WIDTH), partitioner=tf.fixed_size_partitioner(world.size))
            for options in ({"regularizer": tf.nn.l2_loss}, {"constraint": tf.abs}):
                with pytest.raises(InputError, match="has a regularizer or a constraint"):
                    tf.get_variable("other", (ROWS, WIDTH), partitioner=tf.fixed_size_partitioner(2), **options)
        assert (small.shape.as_list(), table.shape.as_list()) == ([5, 2], [ROWS, WIDTH])
        ids = tf.constant([1, 2])
        for use in (
            lambda: tf.reduce_sum(table),
            lambda: tf.matmul(tf.ones([1, WIDTH]), table, transpose_b=True),
            lambda: tf.gather_nd(table, [[0, 0]]),
            lambda: tf.assign(table, tf.zeros([ROWS, WIDTH])),
            lambda: tf.scatter_update(table, ids, tf.zeros([2, WIDTH])),
        ):
            with pytest.raises(ValueError, match=r"tf\.nn\.embedding_lookup\(variable, ids\)"):
                print(use())

        loss = tf.reduce_mean(tf.nn.embedding_lookup(table, ids)) * tf.reduce_sum(small)
        optimizer = tf.train.GradientDescentOptimizer(0.1)
        own = tf.gradients(loss, [small])
        with pytest.raises(InputError, match=r"is that of this rank only(.|\n)*not tf\.gradients"):
            optimizer.apply_gradients(zip(own, [small], strict=True))
        (of_small, _), (of_table, _) = optimizer.compute_gradients(loss, [small, table])
        clipped, _ = tf.clip_by_global_norm([of_small, of_table], 0.1)
        with pytest.raises(InputError, match=r"differs between ranks(.|\n)*clip_by_global_norm"):
            optimizer.apply_gradients([(clipped[0], small)])
        with pytest.raises(InputError, match="not the one that compute_gradients returned"):
            optimizer.apply_gradients([(clipped[1], table)])
        train = optimizer.apply_gradients([(tf.clip_by_norm(of_small, 0.1), small), (of_table, table)])
        saver = tf.train.Saver()
        with tf.train.MonitoredTrainingSession("") as session:
            session.run(train)
            with pytest.raises(tf.errors.OpError, match="a read, a write or a checkpoint of the whole variable"):
                session.run(table)
            with pytest.raises(tf.errors.OpError, match="a read, a write or a checkpoint of the whole variable"):
                saver.save(session._tf_sess(), f"{tempfile.mkdtemp()}/model")
            weights = session.run(small)
        assert all(np.array_equal(one, weights) for one in world.allgather(weights))
    with strategy.scope():
        variable = tf.Variable(1.0)
        with pytest.raises(InputError, match=r"outside of a tf\.Graph(.|\n)*strategy\.optimizer"):
            optimizer.minimize(lambda: variable * 2.0, var_list=[variable])
