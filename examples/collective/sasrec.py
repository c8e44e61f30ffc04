"""Predict the next item of a sequence with SASRec: causal attention, and a head that is tied to the item embeddings.

python examples/collective/sasrec.py
xmc-tf launch --np 2 examples/collective/sasrec.py
"""

import keras
import numpy as np
import tensorflow as tf

from xmc_tf import CollectiveStrategy, TiedHead

ITEMS, WIDTH, LENGTH, SEQUENCES, BATCH = 500, 16, 8, 960, 60

draw = np.random.default_rng(0)
# The next item is the current one plus a step, which is constant in a sequence.
first, step = draw.integers(1, ITEMS, (SEQUENCES, 1)), draw.integers(1, 4, (SEQUENCES, 1))
items = 1 + (first + step * np.arange(LENGTH + 1)) % (ITEMS - 1)
data = tf.data.Dataset.from_tensor_slices((items[:, :-1], items[:, 1:]))


class SASRec(keras.Model):
    """The scores of all items after each item of a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.items = keras.layers.Embedding(ITEMS, WIDTH, mask_zero=True)
        self.positions = keras.layers.Embedding(LENGTH, WIDTH)
        self.attention = keras.layers.MultiHeadAttention(2, WIDTH // 2)
        self.norms = [keras.layers.LayerNormalization() for _ in range(2)]
        self.network = keras.Sequential([keras.layers.Dense(2 * WIDTH, "gelu"), keras.layers.Dense(WIDTH)])
        self.head = TiedHead(self.items)  # instead of ops.matmul(x, ops.transpose(self.items.embeddings))

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Return the scores."""
        x = self.items(inputs) + self.positions(keras.ops.arange(LENGTH))
        normed = self.norms[0](x)
        x = x + self.attention(normed, normed, use_causal_mask=True)
        return self.head(x + self.network(self.norms[1](x)))


strategy = CollectiveStrategy()
keras.utils.set_random_seed(1)
with strategy.scope(), strategy.embedding_scope(shard_above=4096):  # the positions are replicated
    model = SASRec()
    model.compile(keras.optimizers.Adagrad(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True))

share = data.shard(strategy.world_size(), strategy.rank()).batch(BATCH // strategy.world_size())
losses = model.fit(share, epochs=6, shuffle=False, verbose=0).history["loss"]
predictions = model.predict(items[:20, :-1], verbose=0)[:, -1]
if strategy.rank() == 0:
    hits = np.mean(
        [wanted in np.argsort(-scores)[:10] for wanted, scores in zip(items[:20, -1], predictions, strict=True)]
    )
    print("losses:", ", ".join(f"{loss:.4f}" for loss in losses))
    print(f"next items among the ten best: {hits:.0%}")
