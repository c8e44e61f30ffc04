"""Predict clicks with a DLRM as in Keras' and NVIDIA's examples: an Embedding for each category, in a loop of its own.

python examples/collective/dlrm.py
xmc-tf launch --np 2 examples/collective/dlrm.py

examples/dlrm.py is a DLRM whose tables share each exchange, and which a planner places.
"""

import keras
import numpy as np
import tensorflow as tf

from xmc_tf import CollectiveStrategy

ROWS, NUMBERS, WIDTH, EXAMPLES, BATCH = [50, 400, 3000], 4, 8, 4800, 120

draw = np.random.default_rng(0)
numbers = draw.normal(size=(EXAMPLES, NUMBERS)).astype(np.float32)
categories = np.stack([draw.integers(0, rows, EXAMPLES) for rows in ROWS], axis=1)
likes = (categories % 3 - 1).sum(axis=1) + numbers[:, 0]
clicks = (draw.random(EXAMPLES) < 1 / (1 + np.exp(-2 * likes))).astype(np.float32)[:, None]
data = tf.data.Dataset.from_tensor_slices((numbers, categories, clicks))


class DLRM(keras.Model):
    """The score of a click from numbers and categories, by the products of all pairs of their vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = [keras.layers.Embedding(rows, WIDTH, name=f"category_{at}") for at, rows in enumerate(ROWS)]
        self.bottom = keras.Sequential([keras.layers.Dense(16, "relu"), keras.layers.Dense(WIDTH)])
        self.top = keras.Sequential([keras.layers.Dense(16, "relu"), keras.layers.Dense(1)])

    def call(self, inputs: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        """Return the scores."""
        bottom = self.bottom(inputs[0])
        vectors = keras.ops.stack([bottom, *(table(inputs[1][:, at]) for at, table in enumerate(self.tables))], axis=1)
        products = keras.ops.einsum("bnd,bmd->bnm", vectors, vectors)
        pairs = keras.ops.reshape(products, [-1, (1 + len(ROWS)) ** 2])
        return self.top(
            keras.ops.concatenate([keras.ops.reshape(vectors, [-1, (1 + len(ROWS)) * WIDTH]), pairs], axis=1)
        )


strategy = CollectiveStrategy()
keras.utils.set_random_seed(1)
with strategy.scope(), strategy.embedding_scope(shard_above=4096):  # of the tables, the smallest is replicated
    model = DLRM()
    model((numbers[:1], categories[:1]))
    optimizer = strategy.optimizer(keras.optimizers.Adagrad(0.1))
loss_of = keras.losses.BinaryCrossentropy(from_logits=True)


@tf.function
def step(numbers: tf.Tensor, categories: tf.Tensor, clicks: tf.Tensor) -> tf.Tensor:
    """Train on this rank's part of a batch, and return its loss."""
    with tf.GradientTape() as tape:
        loss = loss_of(clicks, model((numbers, categories), training=True))
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    return loss


share = data.shard(strategy.world_size(), strategy.rank()).batch(BATCH // strategy.world_size())
of_rank = [np.mean([step(*batch) for batch in share]) for _ in range(3)]
losses = np.mean(strategy.communicator.allgather(np.array(of_rank)), axis=0)
predictions = model((numbers[:20], categories[:20])).numpy()
if strategy.rank() == 0:
    print("losses:", ", ".join(f"{loss:.4f}" for loss in losses))
