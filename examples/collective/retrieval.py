"""Find movies for users, as keras-rs' tutorial of retrieval: two towers, and the best of all movies for each user.

python examples/collective/retrieval.py
xmc-tf launch --np 2 examples/collective/retrieval.py
"""

import keras
import numpy as np
import tensorflow as tf

from xmc_tf import CollectiveStrategy, TopK

USERS, MOVIES, VIEWS, BATCH, NEGATIVES = 400, 700, 6000, 120, 5

draw = np.random.default_rng(0)
users = draw.integers(0, USERS, VIEWS)
seen = (users * 7 + draw.integers(0, 5, VIEWS)) % MOVIES  # each user likes five movies
# The candidates of a view: the movie, and movies that were drawn at random.
candidates = np.concatenate([seen[:, None], draw.integers(0, MOVIES, (VIEWS, NEGATIVES))], axis=1)
data = tf.data.Dataset.from_tensor_slices(({"user": users, "candidates": candidates}, np.zeros(VIEWS, np.int64)))


class Retrieval(keras.Model):
    """Scores of candidates for a user in training; otherwise the ten best of all movies."""

    def __init__(self) -> None:
        super().__init__()
        self.users = keras.layers.Embedding(USERS, 16)
        self.movies = keras.layers.Embedding(MOVIES, 16)
        self.best = TopK(self.movies, k=10)  # instead of keras_rs' BruteForceRetrieval over movies.embeddings

    def call(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        """Return the scores of the candidates."""
        return keras.ops.einsum("bd,bcd->bc", self.users(inputs["user"]), self.movies(inputs["candidates"]))

    def recommend(self, user: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return scores and numbers of the best movies."""
        return self.best(self.users(user))


strategy = CollectiveStrategy()
keras.utils.set_random_seed(1)
with strategy.scope(), strategy.embedding_scope(shard_above=0):
    model = Retrieval()
    model.compile(keras.optimizers.Adam(0.02), keras.losses.SparseCategoricalCrossentropy(from_logits=True))

share = data.shard(strategy.world_size(), strategy.rank()).batch(BATCH // strategy.world_size())
losses = model.fit(share, epochs=4, shuffle=False, verbose=0).history["loss"]
scores, movies = model.recommend(np.arange(20))
predictions = np.concatenate([scores, movies], axis=1)
if strategy.rank() == 0:
    liked = np.mean(
        [set(np.arange(7 * user, 7 * user + 5)) & set(row) != set() for user, row in enumerate(movies.numpy())]
    )
    print("losses:", ", ".join(f"{loss:.4f}" for loss in losses))
    print(f"users with a movie that they like among their ten best: {liked:.0%}")
