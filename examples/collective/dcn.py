"""Predict ratings with crosses of features, as the tutorial of deep & cross networks of TensorFlow Recommenders.

python examples/collective/dcn.py
xmc-tf launch --np 2 examples/collective/dcn.py
"""

import keras
import numpy as np
import tensorflow as tf
from synthetic import MOVIES, USERS, embedding, ratings, share_of

from xmc_tf import CollectiveStrategy

FEATURES = {"user": USERS, "movie": MOVIES, "age": 10, "city": 23}


class Cross(keras.layers.Layer):
    """Multiplies the first input by a linear function of the second, and adds the second."""

    def build(self, first_shape: tuple[int, ...], x_shape: tuple[int, ...]) -> None:
        """Make the linear function."""
        self.linear = keras.layers.Dense(first_shape[-1])
        self.linear.build(x_shape)

    def call(self, first: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        """Return the crossed features."""
        return first * self.linear(x) + x


def dcn() -> keras.Model:
    """Return the model."""
    inputs = {name: keras.Input([], dtype="int64", name=name) for name in FEATURES}
    first = keras.layers.Concatenate()(
        [embedding(count, 8, f"{name}s")(inputs[name]) for name, count in FEATURES.items()]
    )
    x = Cross()(first, Cross()(first, first))
    for width in (64, 32):
        x = keras.layers.Dense(width, "relu")(x)
    return keras.Model(inputs, keras.layers.Dense(1, bias_initializer=keras.initializers.Constant(3.0))(x))


strategy = CollectiveStrategy(exact=True)
keras.utils.set_random_seed(1)
with strategy.scope(), strategy.embedding_scope(shard_above=1000):  # users and movies; the others are replicated
    model = dcn()
    model.compile(keras.optimizers.Adagrad(0.1), "mse", metrics=[keras.metrics.RootMeanSquaredError(name="error")])

table = ratings()
inputs = {name: table[name] for name in FEATURES}
history = model.fit(share_of((inputs, table["stars"]), strategy), epochs=4, shuffle=False, verbose=0).history
losses = history["loss"] + history["error"]
predictions = model.predict({name: values[:20] for name, values in inputs.items()}, verbose=0)
if strategy.rank() == 0:
    print("losses and errors:", ", ".join(f"{one:.4f}" for one in losses))
    print("predicted stars:", np.round(predictions[:4, 0], 2), "given:", np.round(table["stars"][:4], 2))
