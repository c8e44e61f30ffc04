"""Checks on any number of ranks: several tables in any placement train like dense variables of one process."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from xmc_tf import CollectiveStrategy
from xmc_tf.collective.embedding_collection.planner import EmbeddingTable
from xmc_tf.collective.meters.traffic import bytes_sent

STEPS, BATCH = 5, 5
# Name, rows, dim, combiner, features.
TABLES = [
    ("users", 40, 4, "sum", ("user", "friend")),
    ("words", 23, 4, "mean", ("title",)),
    ("tags", 3, 4, "sum", ("tag",)),
    ("shops", 17, 2, None, ("shop",)),
    ("days", 7, 6, "mean", ("day",)),
]
PLACEMENTS = {
    "mixed": ["last", "rows", "replicated", "last", "rows"],
    "rows": ["rows"] * 5,
}


def initial(rows, dim):
    return np.random.default_rng([rows, dim]).normal(size=(rows, dim)).astype(np.float32)


def described(world, placement):
    """Return the tables in a placement."""
    chosen = [world.size - 1 if one == "last" else one for one in PLACEMENTS[placement]]
    return [
        EmbeddingTable(name, rows, dim, features, combiner, initial(rows, dim), where)
        for (name, rows, dim, combiner, features), where in zip(TABLES, chosen, strict=True)
    ]


def draw_batch(step, rank):
    """Return ids by feature, weights, and targets: one id each, dense bags, ragged bags, and weighted ones."""
    rng = np.random.default_rng([step, rank])
    lengths = rng.integers(0, 4, BATCH)
    ids = {
        "user": tf.constant(rng.integers(0, 40, BATCH)),
        "friend": tf.constant(rng.integers(0, 40, (BATCH, 3))),
        "title": tf.RaggedTensor.from_row_lengths(rng.integers(0, 23, lengths.sum()), lengths),
        "tag": tf.constant(rng.integers(0, 3, (BATCH, 1)), tf.int32),
        "shop": tf.constant(rng.integers(0, 17, (BATCH, 2))),
        "day": tf.constant(rng.integers(0, 7, (BATCH, 2))),
    }
    weights = {"day": tf.constant(rng.uniform(0.5, 2, (BATCH, 2)), tf.float32)}
    return ids, weights, tf.constant(rng.normal(size=(BATCH, 3)), tf.float32)


def dense_lookup(variables, ids, weights):
    """Return the embeddings from dense variables, with TensorFlow's own operations."""
    users, words, tags, shops, days = variables
    flat = tf.gather(words, ids["title"].flat_values)
    titles = tf.math.unsorted_segment_mean(flat, ids["title"].value_rowids(), BATCH)
    share = weights["day"] / tf.reduce_sum(weights["day"], axis=1, keepdims=True)
    return {
        "user": tf.gather(users, ids["user"]),
        "friend": tf.reduce_sum(tf.gather(users, ids["friend"]), axis=1),
        "title": titles,
        "tag": tf.gather(tags, ids["tag"][:, 0]),
        "shop": tf.gather(shops, ids["shop"]),
        "day": tf.reduce_sum(tf.gather(days, ids["day"]) * share[:, :, None], axis=1),
    }


def loss_of(found, kernel, targets):
    """Return a loss in which all features interact."""
    of_width_4 = tf.stack([found[name] for name in ("user", "friend", "title", "tag")], axis=1)
    dots = tf.reshape(tf.matmul(of_width_4, of_width_4, transpose_b=True), [BATCH, 16])
    whole = tf.concat([dots, tf.reshape(found["shop"], [BATCH, 4]), found["day"]], axis=1)
    return tf.reduce_mean(tf.square(tf.matmul(whole, kernel) - targets))


def dense_losses(size):
    """Return the mean losses of the ranks in each step, computed by one process with dense variables.

    The last one is that of the first batches again, which tells whether the training did anything.
    """
    variables = [tf.Variable(initial(rows, dim)) for _, rows, dim, _, _ in TABLES]
    kernel = tf.Variable(initial(26, 3) * 0.1)
    optimizer = keras.optimizers.Adagrad(0.05)
    losses = []
    for step in [*range(STEPS), 0]:
        with tf.GradientTape() as tape:
            of_rank = []
            for rank in range(size):
                ids, weights, targets = draw_batch(step, rank)
                of_rank.append(loss_of(dense_lookup(variables, ids, weights), kernel, targets))
            loss = tf.add_n(of_rank) / size
        every = [*variables, kernel]
        # Of sparse gradients, Keras 3 squares those of repeated ids one by one.
        dense = [tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss, every)]
        optimizer.apply_gradients(zip(dense, every, strict=True))
        losses.append(float(loss))
    return losses


def our_losses(world, placement, joint):
    """Return the same losses over the ranks."""
    strategy = CollectiveStrategy(world, shard_above=300)
    name = f"{placement}_{joint}"
    layer = strategy.embeddings(described(world, placement), batch_size=BATCH, joint=joint, name=name)
    with strategy.scope():
        kernel = tf.Variable(initial(26, 3) * 0.1)
    optimizer = strategy.optimizer(keras.optimizers.Adagrad(0.05))

    @tf.function(autograph=False)
    def train(ids, weights, targets):
        with tf.GradientTape() as tape:
            loss = loss_of(layer(ids, weights), kernel, targets)
        every = [*layer.trainable_variables, kernel]
        optimizer.apply_gradients(zip(tape.gradient(loss, every), every, strict=True))
        return loss

    losses = []
    for step in range(STEPS):
        losses.append(float(np.mean(world.allgather(float(train(*draw_batch(step, world.rank)))))))
    assert strategy.check_replicas([kernel]) == 1
    return losses, layer


def check_every_placement_trains_like_one_dense_process(world):
    *wanted, again = dense_losses(world.size)
    assert again < 0.9 * wanted[0]
    for placement, joint in (("mixed", True), ("rows", False)):
        before = bytes_sent().get("rows", 0)
        found, layer = our_losses(world, placement, joint=joint)
        np.testing.assert_allclose(found, wanted, rtol=2e-6, err_msg=placement)
        held = world.allgather(sum(int(np.prod(table.variable.shape)) for table in layer.tables))
        np.testing.assert_allclose(4 * np.array(held), layer.plan.memory() / 3)
        sent = sum(world.allgather(bytes_sent().get("rows", 0) - before))
        assert (sent > 0) == (world.size > 1)


def check_ids_out_of_range_name_their_table(world):
    ids, weights, _ = draw_batch(0, world.rank)
    wrong = dict(ids)
    if world.rank == world.size - 1:
        wrong["tag"] = ids["tag"] + 3
    message = rf"ids out of range on rank {world.size - 1}: of table tags \(rows 0 to 2\)"
    for placement in ("rows", "mixed"):  # in the latter, each rank holds all tags
        layer = CollectiveStrategy(world).embeddings(described(world, placement), name=f"refusing_{placement}")
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            layer(wrong, weights)
        assert layer(ids, weights)["shop"].shape == [BATCH, 2, 2]
