"""Train a sharded embedding table in your own training loop: a lookup, a loss and an optimizer.

python examples/variable.py
horovodrun -np 2 -H localhost:2 python examples/variable.py
"""

import keras
import tensorflow as tf

from xmc_tf import CollectiveStrategy

strategy = CollectiveStrategy()
with strategy.scope():
    # Each rank holds its share of the 1,000 rows. With shard_above=0, even a table as small as this one is sharded.
    with strategy.embedding_scope(shard_above=0):
        table = strategy.variable("var_1", shape=(1000, 3), initializer="ones")
    scale = tf.Variable(2.0, name="scale")
    optimizer = strategy.optimizer(keras.optimizers.Adagrad(0.1))

variables = [table.variable, scale]


@tf.function
def step(ids: tf.Tensor) -> tf.Tensor:
    """Run one step: look up rows of all ranks, and send their gradients back."""
    with tf.GradientTape() as tape:
        rows = strategy.lookup(table, ids)
        loss = tf.reduce_sum(tf.square(rows * scale))
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
    return loss


# Each rank has its own ids, whose rows may be on any rank.
ids = tf.constant([0, 1, 2, 5, 6, 7 + 900 * strategy.rank()], tf.int64)
for number in range(5):
    loss = step(ids)
    print(f"rank {strategy.rank()} of {strategy.world_size()}, step {number}: loss {loss.numpy():.4f}", flush=True)
