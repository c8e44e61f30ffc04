"""Find movies for users, with the movies of other users as negatives, as the retrieval task of TensorFlow Recommenders.

python examples/collective/in_batch.py
xmc-tf launch --np 2 examples/collective/in_batch.py
"""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from synthetic import BATCH, MOVIES, USERS, embedding, ratings, share_of

from xmc_tf import CollectiveStrategy

strategy = CollectiveStrategy(exact=True)


class TwoTowers(keras.Model):
    """A vector for each user and movie."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.movies = embedding(USERS, 16), embedding(MOVIES, 16)

    def call(self, inputs: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the vectors of users and of the movies that they rated."""
        return self.users(inputs["user"]), self.movies(inputs["movie"])

    def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, *_: Any, **__: Any) -> tf.Tensor:
        """Return the loss of each user's movie among those of the batch, which strategy.gather has of all ranks."""
        users, movies = y_pred
        candidates, positions = strategy.gather(movies)
        scores = keras.ops.matmul(users, keras.ops.transpose(candidates))
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)(positions, scores)


keras.utils.set_random_seed(1)
with strategy.scope(), strategy.embedding_scope(shard_above=0):
    model = TwoTowers()
    model.compile(keras.optimizers.Adam(0.02))

table = ratings()
inputs = {name: table[name] for name in ("user", "movie")}
losses = model.fit(share_of((inputs,), strategy), epochs=4, shuffle=False, verbose=0).history["loss"]
users, movies = model.predict({name: values[:BATCH] for name, values in inputs.items()}, verbose=0)
predictions = users @ movies.T
if strategy.rank() == 0:
    better = (predictions > np.diag(predictions)[:, None]).sum(axis=1)
    print("losses:", ", ".join(f"{loss:.4f}" for loss in losses))
    print(f"movies of a batch that are above a user's own, on average: {better.mean():.1f} of {BATCH}")
