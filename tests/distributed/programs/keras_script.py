"""Three lines changed: the same models of Keras 3, trained by one process or by many ranks, and their predictions."""

import json

import keras
import numpy as np
import tensorflow as tf

from xmc_tf import CollectiveStrategy

ROWS, WIDTH, EXAMPLES, BATCH = 6000, 64, 96, 12
rng = np.random.default_rng(0)
ids = rng.integers(0, ROWS, (EXAMPLES, 6))
targets = (ids % 7).mean(axis=1, keepdims=True).astype(np.float32)


def layers():
    return [
        keras.layers.Embedding(ROWS, WIDTH),
        keras.layers.GlobalAveragePooling1D(),
        keras.layers.Dense(4, "tanh"),
        keras.layers.Dense(1),
    ]


class Model(keras.Model):  # built by its first step
    def __init__(self):
        super().__init__()
        self.parts = layers()

    def call(self, inputs):
        for layer in self.parts:
            inputs = layer(inputs)
        return inputs


class OwnStep(Model):
    def train_step(self, data):
        inputs, wanted = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=wanted, y_pred=self(inputs, training=True))
            scaled = self.optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss}


def fit(model, data):
    model.fit(data, epochs=2, verbose=0)


def loop(model, data):
    optimizer = strategy.optimizer(keras.optimizers.Adam(0.01))
    model(ids[:1])

    @tf.function
    def step(inputs, wanted):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(inputs, training=True) - wanted))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    for _ in range(2):
        for inputs, wanted in data:
            step(inputs, wanted)


strategy = CollectiveStrategy()
keras.utils.set_random_seed(7 + strategy.rank())  # rank 0's counts
found = {}
for name, make, train in (("model", Model, fit), ("own train_step", OwnStep, fit), ("tape", Model, loop)):
    with strategy.scope(), strategy.embedding_scope():
        model = make()
        model.compile(keras.optimizers.Adam(0.01), "mse")
    data = tf.data.Dataset.from_tensor_slices((ids, targets))
    data = data.shard(strategy.world_size(), strategy.rank()).batch(BATCH // strategy.world_size())
    train(model, data)
    found[name] = np.asarray(model(ids)).reshape(-1).tolist()
shapes = [list(table.variable.shape) for table in strategy.tables]
print(json.dumps({"predictions": found, "tables": shapes}), flush=True)
