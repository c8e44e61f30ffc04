"""Predict movie ratings with the estimator: train sharded embeddings of users and movies, evaluate, and export.

    python examples/movielens.py [FOLDER]
    horovodrun -np 2 -H localhost:2 python examples/movielens.py [FOLDER]

The script generates 20,000 ratings of 300 movies by 400 users from hidden tastes, which the model has to learn. If a
run is interrupted, the same command resumes it, on the same or a different number of ranks.
"""

import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from xmc_tf import CollectiveStrategy
from xmc_tf.collective.estimator import EvalSpec, TrainSpec

USERS, MOVIES, RATINGS, TASTES = 400, 300, 20_000, 2


def ratings() -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return users, movies and ratings of 1 to 5 stars, by the match of a user's tastes and a movie."""
    draw = np.random.default_rng(2021)
    likes, has = draw.standard_normal((USERS, TASTES)), draw.standard_normal((MOVIES, TASTES))
    users, movies = draw.integers(0, USERS, RATINGS), draw.integers(0, MOVIES, RATINGS)
    agreement = np.einsum("nt,nt->n", likes[users], has[movies]) / np.sqrt(TASTES)
    stars = np.clip(np.rint(3 + agreement + 0.2 * draw.standard_normal(RATINGS)), 1, 5)
    return {"user_id": users, "movie_id": movies}, stars.astype(np.float32)


def batches(first: int, last: int) -> tf.data.Dataset:
    """Return batches of a range of the ratings; the estimator distributes them to the ranks."""
    given, stars = ratings()
    part = {name: values[first:last] for name, values in given.items()}
    data = tf.data.Dataset.from_tensor_slices((part, stars[first:last]))
    return data.shuffle(RATINGS, seed=2021).batch(256)


def make_model() -> keras.Model:
    """Return a model that compares the embeddings of a user and a movie."""
    user = keras.Input([], dtype=tf.int64, name="user_id")
    movie = keras.Input([], dtype=tf.int64, name="movie_id")
    with strategy.embedding_scope(shard_above=0):
        users = keras.layers.Embedding(USERS, 8, name="users")
        movies = keras.layers.Embedding(MOVIES, 8, name="movies")
    agreement = keras.layers.Multiply()([users(user), movies(movie)])
    start = keras.initializers.Constant(3.0)
    rating = keras.layers.Dense(1, name="rating", bias_initializer=start)(agreement)
    model = keras.Model([user, movie], rating)
    model.compile(keras.optimizers.Adam(0.05), "mse", metrics=["mae"])
    return model


strategy = CollectiveStrategy()
folder = Path(sys.argv[1] if len(sys.argv) > 1 else "movielens-work")
estimator = strategy.estimator(make_model, model_dir=folder, save_every=50)
results = estimator.train_and_evaluate(
    TrainSpec(lambda: batches(0, 18_000), max_steps=150), EvalSpec(lambda: batches(18_000, RATINGS))
)
served = estimator.export_saved_model(folder / "served" / "1")
if strategy.rank() == 0:
    print(f"on held-out ratings: {results}")
    print(f"for TensorFlow Serving: {served}")
