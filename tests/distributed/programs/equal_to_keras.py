"""Train each row of docs/reference/equal-to-keras.md with plain Keras, and over the ranks in both modes.

An outcome is "equal" (all losses, metrics and predictions within 1e-5, without a word), "announced" (a line at
``compile`` or in the first step names the alternative), "different", or "refused" (an ``InputError`` before the first
step).
"""

import functools
import json
import logging
import sys
import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from xmc_tf import CollectiveStrategy, GrowingEmbedding
from xmc_tf.common.errors import InputError

L, OPT, losses = keras.layers, keras.optimizers, keras.losses
# Four steps on any number of ranks up to three. In the last one, only rank 0 has an example.
ROWS, STEP, EXAMPLES, WIDE = 12, 6, 19, 150
draw = np.random.default_rng(0)
IDS = draw.integers(0, ROWS, (EXAMPLES, 3))  # equal ids are in one step, on one rank and on several
NUMBERS = (IDS % 7).mean(axis=1, keepdims=True).astype(np.float32)
CLICKS = (NUMBERS > 2.9).astype(np.float32)
WEIGHTS = draw.uniform(0.5, 2, EXAMPLES).astype(np.float32)
TABLE, SMALL = (draw.normal(size=(rows, 4)).astype(np.float32) * 0.3 for rows in (ROWS, 7))


def fixed(seed: int) -> Callable[..., np.ndarray]:
    return lambda shape, dtype=None: np.random.default_rng(seed).normal(size=shape).astype(np.float32) * 0.4


def model_of(*between: keras.layers.Layer, final: str | None = None) -> keras.Model:
    """Return a model of a table that is sharded, one that is replicated, and some layers."""
    ids = keras.Input([3], dtype="int64")
    items = L.Embedding(ROWS, 4, weights=[TABLE], name="items")(ids)
    kinds = L.Embedding(7, 4, weights=[SMALL], name="kinds")(ids % 7)
    x = L.Dense(3, "tanh", kernel_initializer=fixed(1))(L.Flatten()(L.Concatenate()([items, kinds])))
    for layer in between:
        x = layer(x)
    return keras.Model(ids, L.Dense(1, final, kernel_initializer=fixed(2))(x))


def classes_of(model: keras.Model) -> keras.Model:
    """Return a model of the probabilities of four classes."""
    return keras.Model(model.inputs, L.Dense(4, "softmax", kernel_initializer=fixed(4))(model.outputs[0]))


def masked_model() -> keras.Model:
    ids = keras.Input([3], dtype="int64")
    x = L.Embedding(ROWS, 4, weights=[TABLE], mask_zero=True, name="items")(ids)
    return keras.Model(ids, L.Dense(1, kernel_initializer=fixed(2))(x))


def sparse_model(strategy: CollectiveStrategy | None) -> keras.Model:
    ids = keras.Input([3], dtype="int64", sparse=True)
    x = L.Flatten()(L.Embedding(ROWS, 4, weights=[TABLE], name="items")(ids))
    return keras.Model(ids, L.Dense(1, kernel_initializer=fixed(2))(x))


class CompiledLookup(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.items = L.Embedding(ROWS, 4, weights=[TABLE])
        self.last = L.Dense(1, kernel_initializer=fixed(2))
        self.rows = tf.function(self.items, jit_compile=True, autograph=False)

    def call(self, ids: tf.Tensor) -> tf.Tensor:
        return self.last(tf.reduce_sum(self.rows(ids), axis=1))


def two_outputs() -> keras.Model:
    first = model_of()
    x = L.Activation("linear", name="first")(first.outputs[0])
    return keras.Model(first.inputs, [x, L.Dense(1, kernel_initializer=fixed(3), name="second")(x)])


class Positions(keras.Model):
    """All ranks look up the same ids, once for the whole batch, in one table that is sharded and one that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.items = L.Embedding(ROWS, 4, weights=[TABLE], name="items")
        self.places = [L.Embedding(len(one), 4, weights=[one]) for one in (TABLE, SMALL)]
        self.flat, self.out = L.Flatten(), L.Dense(1, kernel_initializer=fixed(2))

    def call(self, ids: tf.Tensor) -> tf.Tensor:
        places = sum(one(tf.range(3)) for one in self.places)
        return self.out(self.flat(tf.tanh(self.items(ids) + places)))


class TwoTowers(keras.Model):
    """Each example's other items are the negatives of its batch."""

    def __init__(self, strategy: CollectiveStrategy | None, over_ranks: bool) -> None:
        super().__init__()
        self.strategy = strategy if over_ranks else None
        self.items = L.Embedding(ROWS, 4, weights=[TABLE], name="items")
        self.tower = L.Dense(4, kernel_initializer=fixed(4))

    def call(self, ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return self.tower(self.items(ids[:, 0])), self.items(ids[:, 1])

    def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, *_: Any, **__: Any) -> tf.Tensor:
        queries, candidates = y_pred
        positions = tf.range(tf.shape(queries)[0])
        if self.strategy is not None:
            candidates, positions = self.strategy.gather(candidates)
        scores = tf.matmul(queries, candidates, transpose_b=True)
        return losses.SparseCategoricalCrossentropy(from_logits=True)(positions, scores)


def root_mean_squared(y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
    return keras.ops.sqrt(keras.ops.mean(keras.ops.square(y_true - y_pred)))


class Summed(losses.Loss):
    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        return 0.1 * keras.ops.sum(keras.ops.abs(y_true - y_pred))


class WithLoss(L.Layer):
    """Adds a loss: ``of`` the squares of its inputs."""

    def __init__(self, of: Callable[[tf.Tensor], tf.Tensor]) -> None:
        super().__init__()
        self.of = of

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        self.add_loss(0.1 * self.of(keras.ops.square(inputs)))
        return inputs


class Centered(L.Layer):
    """Subtracts moving means: a variable of Keras, and one of TensorFlow that is assigned in a branch."""

    def build(self, shape: tuple[int, ...]) -> None:
        self.mean = self.add_weight(shape=(shape[-1],), initializer="zeros", trainable=False, name="mean")
        self.lasting = tf.Variable(tf.zeros([]), trainable=False)

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        lasting = tf.identity(self.lasting)
        if training:
            now = keras.ops.mean(keras.ops.stop_gradient(inputs), axis=0)
            self.mean.assign(0.9 * self.mean + 0.1 * now)
            tf.cond(tf.constant(True), lambda: self.lasting.assign_add(tf.reduce_mean(now)), lambda: self.lasting)
        return inputs - self.mean - lasting


class Codebook(L.Layer):
    """Adds vectors that are means of the inputs next to them, and divides by the inputs' moving variance."""

    def __init__(self, strategy: CollectiveStrategy | None = None) -> None:
        super().__init__()
        self.strategy = strategy

    def build(self, shape: tuple[int, ...]) -> None:
        new = functools.partial(self.add_weight, initializer="ones", trainable=False)
        self.vectors, self.sums = (new(shape=(2, shape[-1])) for _ in range(2))
        self.counts, self.variance = new(shape=(2,)), new(shape=(shape[-1],))

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        ops = keras.ops
        if training:
            every = tf.stop_gradient(inputs if self.strategy is None else self.strategy.gather(inputs)[0])
            next_to = ops.one_hot(ops.cast(ops.sum(every, axis=1) > 0, "int32"), 2)
            self.counts.assign_add(ops.sum(next_to, axis=0))
            self.sums.assign_add(ops.matmul(ops.transpose(next_to), every))
            self.vectors.assign(self.sums / self.counts[:, None])
            self.variance.assign(0.9 * self.variance + 0.1 * ops.var(every, axis=0))
        found = ops.cast(ops.sum(inputs, axis=1) > 0, "int32")
        return (inputs + tf.gather(self.vectors, found)) / ops.sqrt(self.variance + 0.1)


class Counted(L.Layer):
    """Divides by a count, which is assigned at once or in a branch."""

    def __init__(self, in_branch: bool) -> None:
        super().__init__()
        self.in_branch = in_branch

    def build(self, shape: tuple[int, ...]) -> None:
        self.counts = self.add_weight(shape=(2,), initializer="ones", trainable=False)

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        def count() -> tf.Tensor:
            return self.counts.assign_add(tf.math.bincount(kinds, minlength=2, maxlength=2, dtype=tf.float32))

        if training:
            kinds = tf.cast(tf.reduce_sum(inputs, axis=1) > 0, tf.int32)
            tf.cond(tf.size(kinds) > 0, count, lambda: self.counts.value) if self.in_branch else count()
        return inputs / tf.sqrt(self.counts[0])


class Steps(keras.Model):
    """A model with a ``train_step`` and metrics of its own, which it returns by other names."""

    def __init__(self, model: keras.Model, strategy: CollectiveStrategy | None) -> None:
        super().__init__()
        self.model, self.strategy, self.tracker = model, strategy, keras.metrics.Mean(name="tracker")
        self.error = keras.metrics.RootMeanSquaredError(name="error")

    def call(self, ids: tf.Tensor) -> tf.Tensor:
        return self.model(ids)

    def train_step(self, data: tuple[tf.Tensor, tf.Tensor]) -> dict[str, tf.Tensor]:
        ids, numbers = data
        with tf.GradientTape() as tape:
            found = self(ids)
            loss = tf.reduce_mean(tf.square(found - numbers)) + sum(map(tf.reduce_mean, self.losses))
            scaled = (self.strategy or self.optimizer).scale_loss(loss)
        gradients = tape.gradient(scaled, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        self.tracker.update_state(loss)
        self.error.update_state(numbers, found)
        return {"last": loss, "scaled": scaled, "mean of losses": self.tracker.result(), "rmse": self.error.result()}


class Cell(L.Layer):
    """A recurrent cell that looks its inputs up."""

    def __init__(self) -> None:
        super().__init__()
        self.state_size, self.items = 4, L.Embedding(ROWS, 4, weights=[TABLE], name="items")

    def build(self, shape: tuple[int, ...]) -> None:
        self.items.build()

    def call(self, inputs: tf.Tensor, states: list[tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
        state = 0.5 * states[0] + self.items(keras.ops.cast(inputs[:, 0], "int32"))
        return state, [state]


class Changed(keras.Model):
    """A model with a ``train_step`` whose loss is a sum, or a mean times the number of examples; which clips gradients,
    or which moves weights for a while.
    """

    def __init__(self, model: keras.Model, how: str) -> None:
        super().__init__()
        self.model, self.how = model, how

    def call(self, ids: tf.Tensor) -> tf.Tensor:
        return self.model(ids)

    def gradients(self, data: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, list[Any]]:
        with tf.GradientTape() as tape:
            loss = (tf.reduce_sum if self.how == "sum" else tf.reduce_mean)(tf.square(self(data[0]) - data[1]))
            loss *= data[0].shape[0] if self.how == "times" else 1.0
            scaled = self.optimizer.scale_loss(loss)
        return loss, tape.gradient(scaled, self.trainable_variables)

    def train_step(self, data: tuple[tf.Tensor, tf.Tensor]) -> dict[str, tf.Tensor]:
        loss, gradients = self.gradients(data)
        if self.how == "clip":
            gradients, _ = tf.clip_by_global_norm(gradients, 0.1)
        elif self.how == "move":  # sharpness-aware minimization, of a layer
            moved = self.model.layers[-1].trainable_variables
            before = [tf.identity(one) for one in moved]
            for variable, gradient in zip(moved, gradients[-2:], strict=True):
                variable.assign_add(0.1 * gradient)
            _, gradients = self.gradients(data)
            for variable, value in zip(moved, before, strict=True):
                variable.assign(value)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"last": loss}


class Row(NamedTuple):
    """How a feature is trained: by default, a small model with squared errors for one epoch."""

    optimizer: Callable[[], Any] = lambda: OPT.SGD(0.1)
    make: Callable[[CollectiveStrategy | None], keras.Model] = lambda strategy: model_of()
    compile: Callable[[], dict[str, Any]] = dict
    arrays: tuple[Any, ...] = (IDS, NUMBERS)
    data: Callable[[tf.data.Dataset], Any] = lambda batches: batches
    fit: dict[str, Any] = {}  # noqa: RUF012
    is_evaluated: bool = True
    train: Callable[[keras.Model, Any, dict[str, Any]], dict[str, Any]] = lambda model, data, fit: (
        model.fit(data, verbose=0, **fit).history
    )


def of(make: Callable[..., Any], *args: Any, **options: Any) -> Row:
    return Row(lambda: make(*args, **options), is_evaluated=False)


def excluded() -> keras.optimizers.Optimizer:
    optimizer = OPT.AdamW(0.02, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_names=["items/embeddings", "bias"])
    return optimizer


def by_batches(model: keras.Model, data: tf.data.Dataset, fit: dict[str, Any]) -> dict[str, Any]:
    # Full batches only: a rank without one would have to pass an empty one.
    return {"loss": [model.train_on_batch(ids, numbers) for ids, numbers in data.take(2)]}


def traced() -> dict[str, Any]:
    return {"run_eagerly": False}


def of_fixed_size(batches: tf.data.Dataset) -> tf.data.Dataset:
    size = len(next(iter(batches))[0])
    return batches.map(lambda *arrays: tuple(tf.ensure_shape(one, [size, *one.shape[1:]]) for one in arrays))


NOT_PLAIN = ("jit_compile=True", "stateful=True")  # one process does what plain Keras does
ANNOUNCING = ("exact=True", "strategy.gather", "global_clipnorm")  # the alternatives that a line of the log names
FEATURES = {
    "SGD": of(OPT.SGD, 0.1),
    "SGD with momentum": of(OPT.SGD, 0.05, momentum=0.9, nesterov=True),
    "Adagrad": of(OPT.Adagrad, 0.1),
    "Adam": of(OPT.Adam, 0.02),
    "AdamW": of(OPT.AdamW, 0.02, weight_decay=0.1),
    "Adam with amsgrad": of(OPT.Adam, 0.02, amsgrad=True),
    "RMSprop": of(OPT.RMSprop, 0.01),
    "Ftrl": of(OPT.Ftrl, 0.1, l1_regularization_strength=0.01, l2_regularization_strength=0.01),
    "Lion": of(OPT.Lion, 0.01, weight_decay=0.1),
    "Adadelta": of(OPT.Adadelta, 0.5),
    "Adamax": of(OPT.Adamax, 0.02),
    "Nadam": of(OPT.Nadam, 0.02),
    "Lamb, Adafactor, Muon, ScheduleFreeAdamW": of(OPT.Lamb, 0.02),
    "MultiOptimizer": of(lambda: OPT.MultiOptimizer(OPT.OptimizerMap(OPT.SGD(0.1), {"items/.*": OPT.Adagrad(0.1)}))),
    "weight_decay": of(OPT.SGD, 0.1, weight_decay=0.1),
    "exclude_from_weight_decay": Row(excluded),
    "clipnorm": of(OPT.SGD, 0.3, clipnorm=0.05),
    "global_clipnorm": of(OPT.SGD, 0.3, global_clipnorm=0.1),
    "global_clipnorm with Adam": of(OPT.Adam, 0.02, global_clipnorm=0.1),
    "clipvalue": of(OPT.SGD, 0.3, clipvalue=0.01),
    "use_ema": of(OPT.SGD, 0.1, use_ema=True, ema_momentum=0.5),
    "use_ema with gradient_accumulation_steps": of(
        OPT.SGD, 0.1, use_ema=True, ema_momentum=0.5, gradient_accumulation_steps=2
    ),
    "SwapEMAWeights": Row(
        lambda: OPT.SGD(0.1, use_ema=True, ema_momentum=0.5),
        train=lambda model, data, fit: (
            model.fit(data, verbose=0, callbacks=[keras.callbacks.SwapEMAWeights(swap_on_epoch=True)]).history
        ),
    ),
    "a schedule of learning rates": Row(lambda: OPT.SGD(OPT.schedules.ExponentialDecay(0.3, 2, 0.5))),
    "gradient_accumulation_steps": Row(
        lambda: OPT.SGD(OPT.schedules.ExponentialDecay(0.3, 2, 0.5), gradient_accumulation_steps=2),
        make=lambda strategy: model_of(L.Dense(3, kernel_constraint="unit_norm", kernel_initializer=fixed(5))),
    ),
    "batches whose number is unknown": Row(data=lambda batches: batches.filter(lambda *_: True)),
    "a generator of batches": Row(
        data=lambda batches: (one for one in list(batches.as_numpy_iterator())),
        train=lambda model, data, fit: model.fit(data, verbose=0).history,
    ),
    "steps_per_execution": Row(compile=lambda: {"steps_per_execution": 3, "run_eagerly": False}),
    "sparse ids": Row(
        data=lambda batches: batches.map(lambda ids, numbers: (tf.sparse.from_dense(ids), numbers)), make=sparse_model
    ),
    "sample_weight": Row(arrays=(IDS, NUMBERS, WEIGHTS)),
    "class_weight": Row(arrays=(IDS, CLICKS), fit={"class_weight": {0: 1.0, 1: 3.0}}),
    "train_on_batch": Row(train=by_batches),
    "BackupAndRestore": Row(
        train=lambda model, data, fit: (
            model.fit(data, verbose=0, callbacks=[keras.callbacks.BackupAndRestore(tempfile.mkdtemp())]).history
        )
    ),
    'reduction="sum"': Row(lambda: OPT.SGD(0.02), compile=lambda: {"loss": losses.MeanSquaredError(reduction="sum")}),
    'reduction="none"': Row(lambda: OPT.SGD(0.02), compile=lambda: {"loss": losses.MeanSquaredError("none")}),
    'reduction="mean_with_sample_weight"': Row(
        compile=lambda: {"loss": losses.MeanSquaredError(reduction="mean_with_sample_weight")},
        arrays=(IDS, NUMBERS, WEIGHTS),
    ),
    "masks": Row(make=lambda strategy: masked_model(), arrays=(IDS, np.repeat(NUMBERS[:, None], 3, axis=1))),
    "several outputs": Row(
        make=lambda strategy: two_outputs(),
        compile=lambda: {"loss": ["mse", losses.MeanAbsoluteError(reduction="sum")], "loss_weights": [1.0, 0.1]},
        arrays=(IDS, (NUMBERS, CLICKS)),
    ),
    "regularizers": Row(
        make=lambda strategy: model_of(
            L.Dense(3, kernel_initializer=fixed(5), kernel_regularizer="l2", activity_regularizer="l2")
        )
    ),
    "metrics": Row(
        make=lambda strategy: model_of(final="sigmoid"),
        compile=lambda: {
            "loss": "binary_crossentropy",
            "metrics": [keras.metrics.AUC(name="auc"), keras.metrics.RootMeanSquaredError(name="rmse")],
            "weighted_metrics": ["binary_accuracy"],
        },
        arrays=(IDS, CLICKS, WEIGHTS),
    ),
    "a loss function that returns one number": Row(
        compile=lambda: {"loss": root_mean_squared, "metrics": [root_mean_squared], "run_eagerly": False}
    ),
    "a Loss whose call returns one number": Row(lambda: OPT.SGD(0.02), compile=lambda: {"loss": Summed()}),
    "Dice, Tversky, Circle": Row(
        lambda: OPT.SGD(0.5),
        make=lambda strategy: model_of(final="sigmoid"),
        compile=lambda: {"loss": losses.Dice()},
        arrays=(IDS, CLICKS),
    ),
    "CategoricalGeneralizedCrossEntropy": Row(
        lambda: OPT.SGD(0.5),
        make=lambda strategy: classes_of(model_of()),
        compile=lambda: {"loss": losses.CategoricalGeneralizedCrossEntropy()},
        arrays=(IDS, (IDS[:, :1] % 4).astype(np.int64)),
    ),
    'reduction="none" of losses that compare examples': Row(
        lambda: OPT.SGD(0.02),
        make=lambda strategy: classes_of(model_of()),
        compile=lambda: {"loss": losses.Circle(reduction="none")},
        arrays=(IDS, (IDS[:, :1] % 4).astype(np.int64)),
    ),
    "PearsonCorrelation(axis=0)": Row(
        compile=lambda: {"metrics": [keras.metrics.PearsonCorrelation(axis=0)]},
        arrays=(IDS[: 2 * STEP], NUMBERS[: 2 * STEP]),  # that of a single example is NaN
    ),
    "add_loss of a number for each example": Row(
        lambda: OPT.SGD(0.02), make=lambda strategy: model_of(WithLoss(lambda squares: keras.ops.mean(squares, axis=1)))
    ),
    "add_loss of a mean over the batch": Row(make=lambda strategy: model_of(WithLoss(keras.ops.mean)), compile=traced),
    "add_loss of a sum over the batch": Row(
        lambda: OPT.SGD(0.02), make=lambda strategy: model_of(WithLoss(keras.ops.sum)), compile=traced
    ),
    "variables that layers assign": Row(make=lambda strategy: model_of(Centered()), compile=traced),
    "sums and variances that layers assign": Row(make=lambda strategy: model_of(Codebook()), compile=traced),
    "sums that layers assign, with run_eagerly": Row(make=lambda strategy: model_of(Codebook())),
    "counts of ids that layers assign": Row(make=lambda strategy: model_of(Counted(False)), compile=traced),
    "counts that layers assign in a branch": Row(make=lambda strategy: model_of(Counted(True)), compile=traced),
    "sums that layers assign, with strategy.gather": Row(
        make=lambda strategy: model_of(Codebook(strategy)), compile=traced
    ),
    "a train_step with scale_loss": Row(
        make=lambda strategy: Steps(model_of(WithLoss(abs)), strategy), compile=traced, is_evaluated=False
    ),
    "a lookup in the cell of a recurrent layer": Row(
        make=lambda strategy: keras.Sequential(
            [keras.Input([3]), L.Reshape([3, 1]), L.RNN(Cell()), L.Dense(1, kernel_initializer=fixed(2))]
        ),
        compile=traced,
    ),
    "a train_step whose loss is a sum": Row(
        lambda: OPT.SGD(0.02), make=lambda strategy: Changed(model_of(), "sum"), compile=traced, is_evaluated=False
    ),
    "a train_step whose loss is multiplied by the number of examples": Row(
        lambda: OPT.SGD(0.02),
        make=lambda strategy: Changed(model_of(), "times"),
        compile=traced,
        arrays=(IDS[: 3 * STEP], NUMBERS[: 3 * STEP]),
        data=of_fixed_size,
        is_evaluated=False,
    ),
    "a train_step that clips gradients": Row(
        make=lambda strategy: Changed(model_of(), "clip"), compile=traced, is_evaluated=False
    ),
    "a train_step that assigns weights": Row(
        make=lambda strategy: Changed(model_of(), "move"), compile=traced, is_evaluated=False
    ),
    "convolutions, recurrent layers, maxima over steps": Row(
        make=lambda strategy: model_of(
            L.Reshape([3, 1]),
            L.Conv1D(4, 2, padding="same", kernel_initializer=fixed(6)),
            L.LSTM(4, return_sequences=True, kernel_initializer=fixed(7), recurrent_initializer=fixed(8)),
            L.GlobalMaxPooling1D(),
        )
    ),
    "BatchNormalization": Row(make=lambda strategy: model_of(L.BatchNormalization())),
    "a bias before BatchNormalization, with Adam": Row(
        lambda: OPT.Adam(0.02),
        make=lambda strategy: model_of(L.Dense(3, kernel_initializer=fixed(5)), L.BatchNormalization()),
    ),
    "mixed_float16, mixed_bfloat16": Row(
        make=lambda strategy: model_of(L.Dense(3, dtype="mixed_bfloat16", kernel_initializer=fixed(5)))
    ),
    "embeddings of positions": Row(lambda: OPT.Adagrad(0.1), make=lambda strategy: Positions()),
    "Dropout, GaussianNoise": Row(make=lambda strategy: model_of(L.Dropout(0.5, seed=1))),
    "in-batch negatives": Row(
        make=lambda strategy: TwoTowers(strategy, False),
        arrays=(IDS[: 2 * STEP], NUMBERS[: 2 * STEP]),  # no rank has an empty batch, without any negative
    ),
    "in-batch negatives with strategy.gather": Row(make=lambda strategy: TwoTowers(strategy, True)),
    "stateful=True": Row(
        make=lambda strategy: keras.Sequential(
            [keras.Input(batch_shape=(STEP, 3)), L.Reshape([3, 1]), L.LSTM(2, stateful=True), L.Dense(1)]
        )
    ),
    "a lookup inside tf.function(jit_compile=True)": Row(make=lambda strategy: CompiledLookup(), compile=traced),
    "jit_compile=True": Row(compile=lambda: {"jit_compile": True, "run_eagerly": False}),
    "GrowingEmbedding": Row(
        make=lambda strategy: keras.Sequential(
            [keras.Input([3], dtype="int64"), GrowingEmbedding(4) if strategy else L.Embedding(ROWS, 4), L.Flatten()]
        ),
        arrays=(IDS, np.zeros((EXAMPLES, 12), np.float32)),
    ),
}


def trained(row: Row, model: keras.Model, world: int = 1, rank: int = 0) -> dict[str, Any]:
    """Train with a rank's batches, and return everything that a user can see."""
    model.compile(row.optimizer(), **{"loss": "mse", "run_eagerly": True, **row.compile()})
    batches = tf.data.Dataset.from_tensor_slices(row.arrays).batch(STEP // world).shard(world, rank)
    seen = dict(row.train(model, row.data(batches), row.fit))
    if row.is_evaluated:
        found = model.evaluate(batches, verbose=0, return_dict=True)
        seen |= {f"evaluated {name}": value for name, value in found.items()}
    seen["predicted"] = model.predict(IDS, batch_size=EXAMPLES, verbose=0)
    return seen


def outcome(row: Row, exact: bool, expected: dict[str, Any] | None) -> str:
    """Return the outcome over the ranks, and the largest difference from plain Keras."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    logging.getLogger("xmc_tf.collective").addHandler(handler)
    strategy = CollectiveStrategy(shard_above=WIDE, exact=exact)
    model = None
    try:
        with strategy.scope(), strategy.embedding_scope():
            model = row.make(strategy)
            seen = trained(row, model, strategy.world_size(), strategy.rank())
    except InputError as error:
        assert model is None or getattr(model, "optimizer", None) is None or int(model.optimizer.iterations) == 0
        return f"refused {error}"
    finally:
        logging.getLogger("xmc_tf.collective").removeHandler(handler)
    if expected is None:
        return "different"
    assert seen.keys() == expected.keys(), (seen.keys(), expected.keys())
    differences = {
        name: max(
            np.abs(np.subtract(a, b)).max()
            for a, b in zip(*map(tf.nest.flatten, (seen[name], expected[name])), strict=True)
        )
        for name in expected
    }
    where = max(differences, key=lambda name: np.nan_to_num(differences[name], nan=np.inf))
    apart = differences[where]
    announced = any(
        strategy.communicator.allgather(any(name in one for one in said for name in ANNOUNCING))
    )  # by rank 0
    if apart < 1e-5 and not announced:
        return f"equal {apart:.1e}"
    return f"{'announced' if announced else 'different'} {apart:.1e} ({where})"


def main(*only: str) -> None:
    """Print the outcomes by feature, default and exact, compared with the results of plain Keras on each rank."""
    world = CollectiveStrategy().world_size()
    rows = {name: row for name, row in FEATURES.items() if name in only or not only}
    keras.utils.set_random_seed(0)
    plain = {name: trained(row, row.make(None)) for name, row in rows.items() if name not in NOT_PLAIN}
    found = {}
    for name, row in rows.items():
        found[name] = [outcome(row, exact, plain.get(name)) for exact in (False, True)]
        print(name, [one.splitlines()[0] for one in found[name]], flush=True)
    print(json.dumps({"world": world, "outcomes": found}), flush=True)


main(*sys.argv[1:])
