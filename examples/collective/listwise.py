"""Rank five movies of each user, by a loss of whole lists, as the list-wise tutorial of TensorFlow Recommenders.

python examples/collective/listwise.py
xmc-tf launch --np 2 examples/collective/listwise.py
"""

import keras
import numpy as np
import tensorflow as tf
from synthetic import MOVIES, USERS, embedding, ratings, share_of

from xmc_tf import CollectiveStrategy

LENGTH = 5


def list_mle(stars: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    """Return the loss of each list: how unlikely the scores make the order of its stars."""
    order = keras.ops.argsort(-stars, axis=1)
    scores = keras.ops.take_along_axis(scores, order, axis=1)
    left = keras.ops.flip(keras.ops.cumsum(keras.ops.flip(keras.ops.exp(scores), axis=1), axis=1), axis=1)
    return keras.ops.sum(keras.ops.log(left) - scores, axis=1)


class Ranking(keras.Model):
    """A score for each movie of a user's list."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.movies = embedding(USERS, 16), embedding(MOVIES, 16)
        self.network = keras.Sequential([keras.layers.Dense(32, "relu"), keras.layers.Dense(1)])

    def call(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        """Return the scores."""
        users = keras.ops.repeat(self.users(inputs["user"])[:, None], LENGTH, axis=1)
        movies = self.movies(inputs["movies"])
        return self.network(keras.ops.concatenate([users, movies, users * movies], axis=2))[:, :, 0]


strategy = CollectiveStrategy(exact=True)
keras.utils.set_random_seed(1)
with strategy.scope(), strategy.embedding_scope(shard_above=0):
    model = Ranking()
    model.compile(keras.optimizers.Adagrad(0.5), list_mle)

table = ratings()
order = np.argsort(table["user"], kind="stable")
rows = np.stack([order[first : first + LENGTH] for first in range(0, len(order) - LENGTH, LENGTH)])
rows = rows[np.ptp(table["user"][rows], axis=1) == 0]  # lists of one user
lists = {"user": table["user"][rows[:, 0]], "movies": table["movie"][rows]}
stars = table["stars"][rows]
losses = model.fit(share_of((lists, stars), strategy), epochs=6, shuffle=False, verbose=0).history["loss"]
predictions = model.predict(lists, verbose=0)
if strategy.rank() == 0:
    best = stars[np.arange(len(stars)), predictions.argmax(axis=1)]
    print("losses:", ", ".join(f"{loss:.4f}" for loss in losses))
    print(f"stars of the movie that is ranked first: {best.mean():.2f}; of all: {stars.mean():.2f}")
