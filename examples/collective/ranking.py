"""Predict ratings of movies, as keras-rs' tutorial of ranking: embeddings of users and movies, and a deep network.

python examples/collective/ranking.py
xmc-tf launch --np 2 examples/collective/ranking.py
"""

import keras
import numpy as np
import tensorflow as tf

from xmc_tf import CollectiveStrategy

USERS, MOVIES, RATINGS, BATCH = 600, 900, 6000, 120

draw = np.random.default_rng(0)
tastes, traits = draw.normal(size=(USERS, 2)), draw.normal(size=(MOVIES, 2))
pairs = np.stack([draw.integers(0, USERS, RATINGS), draw.integers(0, MOVIES, RATINGS)], axis=1)
stars = (3 + (tastes[pairs[:, 0]] * traits[pairs[:, 1]]).sum(axis=1)).clip(1, 5).astype(np.float32)
data = tf.data.Dataset.from_tensor_slices((pairs, stars))


class Ranking(keras.Model):
    """A rating for each pair of a user and a movie."""

    def __init__(self) -> None:
        super().__init__()
        self.users = keras.layers.Embedding(USERS, 16)
        self.movies = keras.layers.Embedding(MOVIES, 16)
        self.network = keras.Sequential(
            [keras.layers.Dense(32, "relu"), keras.layers.Dense(16, "relu"), keras.layers.Dense(1)]
        )

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Return the ratings."""
        user, movie = self.users(inputs[:, 0]), self.movies(inputs[:, 1])
        return 3.0 + self.network(keras.ops.concatenate([user, movie, user * movie], axis=1))


strategy = CollectiveStrategy()
keras.utils.set_random_seed(1)
# Tables as small as these are sharded only if this is asked for.
with strategy.scope(), strategy.embedding_scope(shard_above=0):
    model = Ranking()
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=[keras.metrics.MeanAbsoluteError(name="error")])

share = data.shard(strategy.world_size(), strategy.rank()).batch(BATCH // strategy.world_size())
history = model.fit(share, epochs=4, shuffle=False, verbose=0)
losses = history.history["loss"]
predictions = model.predict(pairs[:20], verbose=0)
if strategy.rank() == 0:
    print("losses:", ", ".join(f"{loss:.4f}" for loss in losses))
    print("predicted stars:", np.round(predictions[:4, 0], 2), "given:", np.round(stars[:4], 2))
