"""Learn ratings and views of movies in one model, as the multi-task tutorial of TensorFlow Recommenders.

python examples/collective/multitask.py
xmc-tf launch --np 2 examples/collective/multitask.py
"""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from synthetic import MOVIES, USERS, embedding, ratings, share_of

from xmc_tf import CollectiveStrategy

strategy = CollectiveStrategy(exact=True)


class TwoTasks(keras.Model):
    """Stars for a pair of a user and a movie, and the vectors whose product says how likely the view is."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.movies = embedding(USERS, 16), embedding(MOVIES, 16)
        self.network = keras.Sequential([keras.layers.Dense(32, "relu"), keras.layers.Dense(1)])
        self.error = keras.metrics.RootMeanSquaredError(name="error")

    def call(self, inputs: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return stars, and the vectors of users and movies."""
        users, movies = self.users(inputs["user"]), self.movies(inputs["movie"])
        return 3.0 + self.network(keras.ops.concatenate([users, movies], axis=1))[:, 0], users, movies

    def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, *_: Any, **__: Any) -> tf.Tensor:
        """Return the weighted sum of the losses of both tasks."""
        stars, users, movies = y_pred
        self.error.update_state(y, stars)
        candidates, positions = strategy.gather(movies)
        scores = keras.ops.matmul(users, keras.ops.transpose(candidates))
        of_views = keras.losses.SparseCategoricalCrossentropy(from_logits=True)(positions, scores)
        return keras.losses.MeanSquaredError()(y, stars) + 0.5 * of_views


keras.utils.set_random_seed(1)
with strategy.scope(), strategy.embedding_scope(shard_above=0):
    model = TwoTasks()
    model.compile(keras.optimizers.Adagrad(0.1))

table = ratings()
inputs = {name: table[name] for name in ("user", "movie")}
history = model.fit(share_of((inputs, table["stars"]), strategy), epochs=4, shuffle=False, verbose=0).history
losses = history["loss"] + history["error"]
predictions = model.predict({name: values[:20] for name, values in inputs.items()}, verbose=0)[0]
if strategy.rank() == 0:
    print("losses and errors:", ", ".join(f"{one:.4f}" for one in losses))
    print("predicted stars:", np.round(predictions[:4], 2), "given:", np.round(table["stars"][:4], 2))
