"""Ratings of movies by users, drawn at random, for the examples of this folder."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

USERS, MOVIES, RATINGS, BATCH = 300, 400, 3600, 120


def ratings() -> dict[str, np.ndarray]:
    """Return who rated which movie with how many stars, and properties of users. Each user rates five movies."""
    draw = np.random.default_rng(0)
    users = draw.integers(0, USERS, RATINGS)
    movies = (users * 7 + draw.integers(0, 5, RATINGS)) % MOVIES
    tastes, traits = draw.normal(size=(USERS, 2)), draw.normal(size=(MOVIES, 2))
    stars = (3 + (tastes[users] * traits[movies]).sum(axis=1)).clip(1, 5)
    return {
        "user": users,
        "movie": movies,
        "age": users % 10,
        "city": users % 23,
        "stars": stars.astype(np.float32),
    }


def embedding(rows: int, width: int, name: str | None = None) -> keras.layers.Embedding:
    """Return an embedding whose first values are the same in plain Keras and on any number of ranks."""

    def first_values(shape: tuple[int, int], dtype: Any = None) -> np.ndarray:
        return np.random.default_rng(rows).uniform(-0.05, 0.05, shape)

    return keras.layers.Embedding(rows, width, embeddings_initializer=first_values, name=name)


def share_of(arrays: Any, strategy: Any) -> tf.data.Dataset:
    """Return a rank's batches of all examples. Those of all ranks together have ``BATCH`` examples."""
    examples = tf.data.Dataset.from_tensor_slices(arrays).shard(strategy.world_size(), strategy.rank())
    return examples.batch(BATCH // strategy.world_size())
