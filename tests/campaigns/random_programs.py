"""Random Keras programs: each is some lines of code, what they need, and the parts of the ranks.

The lines are plain Keras, with the names of ``keras.layers``, ``keras.optimizers``, ``keras.callbacks`` and this file.
``start`` gives equal initial weights, ``train``, ``held_out`` and ``inputs`` are the data, ``note`` keeps what is
compared, and ``over_ranks`` is ``strategy.optimizer`` for an optimizer that is not compiled.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from xmc_tf.collective.optimizers.row_wise.keras_forms import names_of_forms

ROWS, KINDS, STEPS, CLASSES = 37, 7, 4, 5  # of the large and the small table; ids in an example; classes
registered = keras.saving.register_keras_serializable("random_programs")


@dataclass(frozen=True)
class Program:
    seed: int
    lines: tuple[str, ...]
    targets: tuple[str, ...]  # the kind of each output
    sizes: tuple[int, ...]  # of the global batches
    parts: dict[int, tuple[tuple[int, ...], ...]]  # by number of ranks: the examples of each rank in each batch
    data: str  # how batches are passed
    weighted: bool
    exact: bool
    saves: bool  # whether the model is loaded in plain Keras at the end

    def __str__(self) -> str:
        about = f"# {self.seed}: exact={self.exact}, {self.data}, targets {self.targets}, weighted={self.weighted}"
        return "\n".join([about, f"# batches {self.sizes} in parts {self.parts}", *self.lines])


@registered
class WithLoss(keras.layers.Layer):
    """Adds a loss: a mean over the batch, a sum, or one for each example. It measures its inputs."""

    def __init__(self, of: str, **options: Any) -> None:
        super().__init__(**options)
        self.of, self.whole = of, keras.metrics.Mean(name="whole")

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        each = 0.1 * ops.mean(ops.square(inputs), axis=-1)
        self.whole.update_state(ops.mean(inputs))
        self.add_loss({"mean": ops.mean, "sum": ops.sum, "each": lambda values: values}[self.of](each))
        return inputs

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"of": self.of}


@registered
class Quantized(keras.layers.Layer):
    """Adds the nearest of some codes, which move to the mean of their examples, and counts steps."""

    def build(self, shape: tuple[int, ...]) -> None:
        self.codes = self.add_weight(shape=(3, shape[-1]), initializer="random_normal", trainable=False, name="codes")
        self.steps = self.add_weight(shape=(), initializer="zeros", dtype="int32", trainable=False, name="steps")

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        codes = ops.convert_to_tensor(self.codes)
        nearest = ops.one_hot(ops.argmax(ops.matmul(inputs, ops.transpose(codes)), axis=-1), 3)
        if training:
            moved = ops.mean(nearest[:, :, None] * ops.stop_gradient(inputs)[:, None, :], axis=0)
            self.codes.assign(0.7 * codes + 0.3 * moved)
            self.steps.assign_add(1)
        return inputs + 0.1 * ops.matmul(nearest, codes)


@registered
class Scaled(keras.layers.Embedding):
    """An Embedding whose rows are multiplied."""

    def __init__(self, input_dim: int, output_dim: int, factor: float = 1.0, **options: Any) -> None:
        super().__init__(input_dim, output_dim, **options)
        self.factor = factor

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return self.factor * super().call(inputs)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"factor": self.factor}


@registered
class Positions(keras.layers.Layer):
    """Adds an embedding of each step."""

    def __init__(self, rows: int, dim: int, **options: Any) -> None:
        super().__init__(**options)
        self.rows, self.dim, self.table = rows, dim, keras.layers.Embedding(rows, dim)

    def build(self, shape: tuple[int, ...]) -> None:
        self.table.build([shape[1]])

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return inputs + self.table(ops.arange(inputs.shape[1]))

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"rows": self.rows, "dim": self.dim}


@registered
class OwnError(keras.metrics.Metric):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.total, self.count = (self.add_variable((), "zeros", name=name) for name in ("total", "count"))

    def update_state(self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: Any = None) -> None:
        errors = ops.abs(ops.cast(y_true, "float32") - y_pred)
        self.total.assign_add(ops.sum(errors))
        self.count.assign_add(ops.cast(ops.size(errors), "float32"))

    def result(self) -> tf.Tensor:
        return ops.divide_no_nan(self.total, self.count)


@registered
class OwnLoss(keras.losses.Loss):
    """A loss of one number for each example, or of one for the batch: a mean or a sum."""

    def __init__(self, of: str, **options: Any) -> None:
        super().__init__(**options)
        self.of = of

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        each = ops.mean(ops.abs(y_true - y_pred), axis=-1)
        if self.of == "each":
            return each
        return ops.mean(each) if self.of == "mean" else 0.1 * ops.sum(each)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"of": self.of}


@registered
class Towers(keras.Model):
    """A model of its own: two towers that share a table, and their product."""

    def __init__(self, rows: int = ROWS, **options: Any) -> None:
        super().__init__(**options)
        self.rows, self.items = rows, keras.layers.Embedding(rows, 4, name="items")
        self.towers = [keras.layers.Dense(3, "tanh"), keras.layers.Dense(3)]

    def call(self, ids: tf.Tensor) -> tf.Tensor:
        history, last = self.items(ids[:, 1:]), self.items(ids[:, 0])
        first, second = self.towers[0](ops.mean(history, axis=1)), self.towers[1](last)
        return ops.sum(first * second, axis=-1, keepdims=True)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"rows": self.rows}


@registered
def is_near(y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
    return ops.cast(ops.abs(y_true - y_pred) < 0.5, "float32")


@registered
class Stepping(keras.Model):
    """A model with a ``compute_loss`` or a ``train_step`` of its own, the latter with one optimizer or two."""

    def __init__(self, inner: keras.Model, kind: str, second: Any = None) -> None:
        super().__init__()
        self.inner, self.kind, self.second = inner, kind, second
        self.tracker = keras.metrics.Mean(name="tracker")

    def get_config(self) -> dict[str, Any]:
        inner = keras.saving.serialize_keras_object(self.inner)
        return {"inner": inner, "kind": self.kind, "second": keras.saving.serialize_keras_object(self.second)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Stepping":
        return cls(**{name: keras.saving.deserialize_keras_object(one) for name, one in config.items()})

    def call(self, inputs: Any, training: bool = False) -> Any:
        return self.inner(inputs, training=training)

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        loss = super().compute_loss(x, y, y_pred, sample_weight, training)
        if self.kind == "loss":
            loss += 0.1 * sum(ops.mean(ops.square(one)) for one in tf.nest.flatten(y_pred))
        self.tracker.update_state(loss)
        return loss

    def train_step(self, data: Any) -> dict[str, Any]:
        if self.kind == "loss":
            return super().train_step(data)
        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            found = self(x, training=True)
            loss = self.compute_loss(x, y, found, weights)
            scaled = self.optimizer.scale_loss(loss)
        pairs = list(zip(tape.gradient(scaled, self.trainable_variables), self.trainable_variables, strict=True))
        self.optimizer.apply_gradients(pairs if self.second is None else pairs[1:])
        if self.second is not None:
            self.second.apply_gradients(pairs[:1])
        return self.compute_metrics(x, y, found, weights) | {"own": loss}


@registered
def root_error(y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
    return ops.sqrt(ops.mean(ops.square(y_true - y_pred)) + 0.01)


@registered
def sum_of_errors(y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
    return 0.1 * ops.sum(ops.square(y_true - y_pred))


def _choices(text: str) -> list[str]:
    return [one.strip() for one in text.replace("\n", " | ").split(" | ") if one.strip()]


# Each choice makes x [examples, STEPS, width]. "T" is a table of ROWS rows, which is sharded, with the name "items".
STARTS = _choices("""
T)(ids) | T)(ids) | T, mask_zero=True)(ids) | T, mask_zero=True)(ids) | T, mask_zero=True)(ids)
Concatenate()([T)(ids), Embedding(KINDS, 3)(ids % KINDS)]) | Add()([T)(ids), Embedding(KINDS, 4)(ids % KINDS)])
Concatenate()([T)(ids), Embedding(ROWS + 3, 2)(ids)]) | (items := T))(ids) * items(ids[:, :1])
Concatenate()([(items := T))(ids), items((ids + 5) % ROWS)])
Dense(4)(T, trainable=False)(ids)) | keras.Sequential([T), Dense(3)])(ids) | T)(Hashing(ROWS)(ids))
T, trainable=False)(ids) | T, embeddings_regularizer='l2')(ids)
Embedding(KINDS, 4, embeddings_regularizer='l2')(ids % KINDS)
Embedding(KINDS, 4, embeddings_constraint='max_norm', mask_zero=True)(ids % KINDS)
Positions(12, 4)(T)(ids)) | Positions(STEPS, 4)(T)(ids)) | Scaled(ROWS, 4, 0.5, name='items')(ids)""")
TIED = "(items := ReversibleEmbedding(ROWS, 4, name='items'))(ids)"
OF_SEQUENCES = _choices("""
Dense(4, 'tanh') | LSTM(3, return_sequences=True) | GRU(3, return_sequences=True) | BatchNormalization()
Bidirectional(LSTM(2, return_sequences=True)) | SimpleRNN(3, return_sequences=True) | LayerNormalization()
BatchNormalization(momentum=0.5) | GroupNormalization(1) | Conv1D(4, 2, padding='same') | UnitNormalization()
TimeDistributed(Dense(3)) | SpatialDropout1D(0.0) | ActivityRegularization(l2=0.1) | Dense(3, activity_regularizer='l2')
LSTM(3, return_sequences=True, go_backwards=True, kernel_regularizer='l2') | SeparableConv1D(3, 2, padding='same')""")
POOLS = _choices("""
GlobalAveragePooling1D() | GlobalAveragePooling1D() | GlobalAveragePooling1D() | GlobalMaxPooling1D() | LSTM(4) | GRU(4)
GRU(4, reset_after=False) | Flatten() | Flatten() | Bidirectional(GRU(2)) | SimpleRNN(4, unroll=True)""")
OF_VECTORS = _choices("""
Dense(4, 'relu', kernel_regularizer='l2') | Dense(4, 'tanh', activity_regularizer='l2') | PReLU() | LayerNormalization()
Dense(4, bias_regularizer='l2', kernel_constraint='max_norm') | Dense(4, kernel_constraint='unit_norm') | Dropout(0.0)
BatchNormalization(momentum=0.5) | BatchNormalization(scale=False, center=False) | RMSNormalization()
BatchNormalization(trainable=False) | BatchNormalization(momentum=0.8, gamma_regularizer='l2')
Dense(3, trainable=False)
BatchNormalization(momentum=0.5, synchronized=True) | SpectralNormalization(Dense(4)) | ActivityRegularization(l1=0.1)
Quantized() | WithLoss('mean') | WithLoss('each') | WithLoss('sum')""")
_NUMBER_LOSSES = """'mse' | 'mae' | 'huber' | 'log_cosh' | root_error | sum_of_errors
MeanSquaredError(reduction='sum') | MeanSquaredError(reduction='mean_with_sample_weight') | MeanSquaredError('none')
OwnLoss('each') | OwnLoss('each', reduction='sum') | OwnLoss('each', reduction=None) | OwnLoss('mean') | OwnLoss('sum')
Huber(delta=0.5) | MeanAbsoluteError(reduction='mean') | MeanAbsolutePercentageError() | CosineSimilarity()"""
_BINARY_LOSSES = """'binary_crossentropy' | BinaryCrossentropy(label_smoothing=0.1) | BinaryFocalCrossentropy(gamma=1.0)
'hinge' | 'squared_hinge' | Dice() | Tversky(alpha=0.3) | 'poisson' | Dice(reduction='sum')
BinaryCrossentropy(reduction='sum') | BinaryFocalCrossentropy(apply_class_balancing=True)
MeanSquaredLogarithmicError(reduction='mean_with_sample_weight')"""
_CLASS_LOSSES = """'sparse_categorical_crossentropy' | SparseCategoricalCrossentropy(ignore_class=0)
SparseCategoricalCrossentropy(reduction='sum') | SparseCategoricalCrossentropy(from_logits=True)
SparseCategoricalCrossentropy(reduction='mean_with_sample_weight')"""
_NUMBER_METRICS = """'mae' | RootMeanSquaredError() | R2Score() | PearsonCorrelation(axis=0) | root_error
ConcordanceCorrelation(axis=0) | CosineSimilarity() | LogCoshError() | MeanSquaredError() | is_near
OwnError()"""
HEADS = {  # by kind of target: the last layer, losses, metrics
    "number": ("Dense(1)", _NUMBER_LOSSES, _NUMBER_METRICS),
    "numbers": (
        "Dense(3)",
        f"{_NUMBER_LOSSES} | CosineSimilarity(axis=0) | CosineSimilarity(axis=0, reduction='none')",
        f"{_NUMBER_METRICS} | PearsonCorrelation()",
    ),
    "number of each step": ("Dense(1)", _NUMBER_LOSSES, "'mae' | RootMeanSquaredError() | root_error"),
    "binary": (
        "Dense(1, 'sigmoid')",
        _BINARY_LOSSES,
        """AUC() | AUC(curve='PR', num_thresholds=20) | Precision() | Recall(thresholds=[0.3, 0.6]) | 'accuracy'
        BinaryIoU() | FalsePositives() | SensitivityAtSpecificity(0.5) | PrecisionAtRecall(0.5) | root_error
        F1Score(threshold=0.5) | BinaryCrossentropy() | Hinge() | BinaryAccuracy() | OwnError() | is_near""",
    ),
    "labels": (
        "Dense(CLASSES, 'sigmoid')",
        f"{_BINARY_LOSSES} | Dice(axis=-1) | Tversky(axis=1)",
        "AUC(multi_label=True) | F1Score('macro') | 'accuracy' | BinaryIoU() | Precision(top_k=2)",
    ),
    "one_hot": (
        "Dense(CLASSES, 'softmax')",
        """'categorical_crossentropy' | 'kl_divergence' | 'categorical_hinge' | CategoricalFocalCrossentropy()
        CategoricalCrossentropy(label_smoothing=0.1) | Dice(axis=(1,)) | CategoricalCrossentropy(reduction='sum')""",
        """'accuracy' | TopKCategoricalAccuracy(2) | F1Score() | FBetaScore('micro', 0.5)
        OneHotMeanIoU(CLASSES) | OneHotIoU(CLASSES, [0, 2]) | CategoricalCrossentropy() | KLDivergence() | AUC()""",
    ),
    "class": (
        "Dense(CLASSES, 'softmax')",
        f"""{_CLASS_LOSSES} | CategoricalGeneralizedCrossEntropy() | Circle() | Circle(reduction='sum')
        Circle(reduction='none')""",
        """'accuracy' | SparseTopKCategoricalAccuracy(2) | SparseCategoricalCrossentropy()
        MeanIoU(CLASSES, sparse_y_pred=False) | IoU(CLASSES, [1], sparse_y_pred=False)""",
    ),
    "row": (
        "(lambda x: items(Dense(4)(x), reverse=True))",
        "SparseCategoricalCrossentropy(from_logits=True) | SparseCategoricalCrossentropy(True, reduction='sum')",
        "'accuracy' | SparseTopKCategoricalAccuracy(2) | SparseCategoricalCrossentropy(from_logits=True)",
    ),
    "row of each step": (
        "TiedHead(items)",
        "SparseCategoricalCrossentropy(from_logits=True) | SparseCategoricalCrossentropy(True, ignore_class=0)",
        "'accuracy' | SparseTopKCategoricalAccuracy(2)",
    ),
    "class of each step": ("Dense(CLASSES, 'softmax')", _CLASS_LOSSES, "'accuracy' | SparseTopKCategoricalAccuracy(2)"),
}
OPTIMIZERS = _choices("""
SGD({} | SGD({} | SGD({} | SGD({}, momentum=0.9 | SGD({}, momentum=0.8, nesterov=True | Adagrad({}, epsilon=1e-3
Adam({}, epsilon=1e-3 | Adam({}, epsilon=1e-3 | Adam({}, epsilon=1e-3, amsgrad=True | AdamW({}, epsilon=1e-3
RMSprop({}, epsilon=1e-3 | RMSprop({}, epsilon=1e-3, momentum=0.5 | RMSprop({}, epsilon=1e-3, centered=True
Ftrl({}, l2_regularization_strength=0.01 | Adadelta({} | Adamax({}, epsilon=1e-3 | Nadam({}, epsilon=1e-3 | Lion(0.01
Lamb({}, epsilon=1e-3 | Adafactor({} | Muon({} | ScheduleFreeAdamW({}, epsilon=1e-3""")
REFUSED = ("Adafactor", "Muon", "ScheduleFree")  # and these or averages of weights, by default:
_NAMES = {one.partition("(")[0] for one in OPTIMIZERS} - {*names_of_forms()}
NEED_EXACT = re.compile("|".join(["use_ema", *sorted(name for name in _NAMES if not name.startswith(REFUSED))]))
RATES = _choices("""
0.05 | 0.05 | 0.1 | 0.1 | schedules.ExponentialDecay(0.1, 2, 0.5) | schedules.CosineDecay(0.1, 8, warmup_steps=2)""")
OPTIONS = _choices("""
clipnorm=0.1 | global_clipnorm=0.1 | clipvalue=0.02 | weight_decay=0.1 | use_ema=True, ema_momentum=0.5
use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2 | gradient_accumulation_steps=2
gradient_accumulation_steps=3, clipnorm=0.1 | weight_decay=0.1, global_clipnorm=0.1
use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2, gradient_accumulation_steps=2""")
COMPILING = [
    "",
    ", auto_scale_loss=False",
    ", run_eagerly=True",
    ", run_eagerly=True",
    ", steps_per_execution=2",
    ", jit_compile=False",
]
CALLBACKS = _choices("""
EarlyStopping('loss', patience=0, restore_best_weights=True) | TerminateOnNaN() | CSVLogger(folder / 'log.csv')
EarlyStopping('val_loss', mode='max', restore_best_weights=True) | BackupAndRestore(folder / 'backup')
ReduceLROnPlateau('loss', factor=0.5, patience=1, min_delta=10.0)
LearningRateScheduler(lambda epoch, rate: rate * 0.5) | LambdaCallback(on_epoch_end=lambda epoch, logs: note(logs))
ModelCheckpoint(folder / 'best.keras', 'loss', save_best_only=True)
ModelCheckpoint(folder / '{epoch}.weights.h5', save_weights_only=True)""")
FIT = "note(model.fit(**train(), verbose=0).history)"
AGAIN = _choices(f"""
{FIT} | model.layers[1].trainable = False; COMPILE; {FIT} | model.optimizer.learning_rate = 0.02; {FIT}
model.save(folder / 'again.keras'); model = keras.models.load_model(folder / 'again.keras'); {FIT}
model.save_weights(folder / 'w.weights.h5'); {FIT}; model.load_weights(folder / 'w.weights.h5')
weights = model.get_weights(); {FIT}; model.set_weights(weights)
weights = model.get_weights(); model = keras.models.clone_model(model); model.set_weights(weights); COMPILE; {FIT}
note([model.train_on_batch(*one) for one in batches()]) | note([model.test_on_batch(*one) for one in batches()])""")


def random_program(seed: int) -> Program:
    """Return the program of a seed. Some are not programs of plain Keras either."""
    draw = random.Random(seed)

    def chance(probability: float) -> bool:
        return draw.random() < probability

    has_towers = chance(0.06)
    is_tied = not has_towers and chance(0.1)
    start = TIED if is_tied else re.sub(r"\bT\b", "Embedding(ROWS, 4, name='items'", draw.choice(STARTS))
    lines = ["ids = Input([STEPS], dtype='int32', name='ids')", f"x = {start}"]
    lines += [f"x = {one}(x)" for one in draw.sample(OF_SEQUENCES, draw.choice([0, 0, 1, 1, 2]))]
    of_steps, inputs = not has_towers and chance(0.2), "ids"
    if not of_steps:
        lines.append(f"x = {draw.choice(POOLS)}(x)")
        if not has_towers and chance(0.3):
            lines += ["numbers = Input([2], name='numbers')", "x = Concatenate()([x, Dense(2)(numbers)])"]
            inputs = draw.choice(["[ids, numbers]", "{'ids': ids, 'numbers': numbers}"])
        lines += [f"x = {one}(x)" for one in draw.sample(OF_VECTORS, draw.choice([0, 1, 1, 2, 3]))]
    names = ["first", "second"][: 2 if not has_towers and chance(0.25) else 1]
    kinds = [one for one in HEADS if one.endswith("each step") == of_steps and ("row" in one) == is_tied]
    targets = [draw.choice(["number"] if has_towers else kinds) for _ in names]
    if is_tied and of_steps:
        lines.append("x = Dense(4)(x)")
    losses, metrics, is_dict = [], [], len(names) == 2 and chance(0.5)
    for name, kind in zip(names, targets, strict=True):
        head, of_losses, of_metrics = HEADS[kind]
        lines.append(f"{name} = Activation('linear', name={name!r})({head}(x))")
        loss = draw.choice(_choices(of_losses))
        if re.search("'none'|None", loss) and (
            len(names) > 1 or re.search("_regularizer|Activity|WithLoss", "".join(lines))
        ):
            loss = "'mse'"  # Keras cannot add a loss of each example to others
        losses.append(_of("losses", loss))
        several = draw.sample(_choices(of_metrics), draw.randrange(3))
        metrics.append(f"[{', '.join(_of('metrics', one) for one in several)}]")
    lines.append(f"model = keras.Model({inputs}, {_structure(names, names, is_dict)})")
    if has_towers:
        lines = ["model = Towers()"]
    way = draw.choices(["fit", "on batch", "own step", "loop"], [14, 1, 3, len(names) == 1 and not is_tied])[0]
    if way == "own step":
        kind = draw.choice(["'loss'", "'tape'", "'tape', over_ranks(Adagrad(0.1))"])
        lines.append(f"model = Stepping(model, {kind})")
    optimizer = draw.choice(OPTIMIZERS)
    if optimizer.startswith(REFUSED) and chance(0.7):
        optimizer = "Adam({}, epsilon=1e-3"
    optimizer = optimizer.format(draw.choice(RATES))
    optimizer += f", {draw.choice(OPTIONS)})" if chance(0.45) else ")"
    if chance(0.05):
        optimizer = f"LossScaleOptimizer({optimizer}, initial_scale=8.0, dynamic_growth_steps=3)"
    # What plain Keras refuses: centered updates of some rows, to set the rate of a schedule, to clone or freeze a part
    # of a model of one's own, and to clone such a model or a tied head.
    if "centered" in optimizer and "global_clipnorm" not in optimizer:
        optimizer = optimizer.replace(", centered=True", "")
    refused = r"LR|Rate|_rate" if "schedules" in optimizer else "$^"
    refused += r"|clone_model|layers\[" if way == "own step" else r"|clone_model" if is_tied or has_towers else ""
    callbacks, again = ([one for one in several if not re.search(refused, one)] for several in (CALLBACKS, AGAIN))
    weighted = way != "loop" and chance(0.25)
    compiling = f"model.compile({optimizer}, {_structure(names, losses, is_dict)}, "
    compiling += f"{'weighted_' * (weighted and chance(0.4))}metrics={_structure(names, metrics, is_dict)}"
    if weighted:  # refused: several numbers for an example
        compiling = compiling.replace("multi_label=True", "").replace("metrics.BinaryIoU()", "'mae'")
    if weighted or "mask_zero" in start:  # and one number for a batch
        before, after = compiling.split("metrics=", 1)
        compiling = f"{before}metrics={after.replace('root_error', 'is_near')}"
    if len(names) == 2 and chance(0.5):
        compiling += f", loss_weights={_structure(names, ['1.0', '0.3'], is_dict)}"
    compiling += f"{draw.choice(COMPILING)})"
    lines += ["start(model)", compiling]
    data = (
        draw.choice(["arrays", "dataset", "dataset", "counted", "sequence", "repeated"]) if way != "loop" else "dataset"
    )
    last = 12 if way == "loop" else draw.randrange(3 if data == "repeated" else 1, 13)
    sizes = (*[12] * draw.choice([1, 2, 3]), last)
    equal = data == "arrays" or chance(0.7)
    parts = {world: _parts(draw, sizes, world, equal, data, way) for world in (2, 3)}
    if way == "on batch":
        lines.append("note([model.train_on_batch(*one) for one in batches()])")
    elif way == "loop":
        loss = next(one for one in _choices(HEADS[targets[0]][1]) if one.startswith("'"))
        lines.append(f"loop(model, over_ranks({optimizer}), {loss})")
    else:
        fit = f"note(model.fit(**train(), verbose=0, epochs={draw.choice([1, 2, 3])}"
        if len(names) == 1 and targets[0] in ("binary", "class", "one_hot") and not weighted and chance(0.25):
            fit += ", class_weight={0: 1.0, 1: 3.0, 2: 0.5, 3: 2.0, 4: 1.5}"
        if chance(0.4):
            fit += f", validation_data=held_out(){draw.choice(['', '', ', validation_steps=1', ', validation_freq=2'])}"
        fit += ", initial_epoch=1" * ("epochs=3" in fit and chance(0.3))
        lines.append(f"{fit}{f', callbacks=[{draw.choice(callbacks)}]' * chance(0.3)}).history)")
        if chance(0.3):
            lines += draw.choice(again).replace("COMPILE", compiling).split("; ")
        if chance(0.6):
            lines.append("note(model.evaluate(held_out(), verbose=0, return_dict=True))")
    lines.append("note(model.predict(inputs, verbose=0))")
    exact = chance(0.75) or (bool(NEED_EXACT.search(optimizer)) and chance(0.8))
    saves = chance(0.25) and way != "own step"
    return Program(seed, tuple(lines), tuple(targets), sizes, parts, data, weighted, exact, saves)


def _of(module: str, text: str) -> str:
    """Return text with its module if it makes an object of Keras; another one is of this file."""
    return f"{module}.{text}" if text[0].isupper() and text[:3] != "Own" else text


def _structure(names: Sequence[str], values: Sequence[str], is_dict: bool) -> str:
    if len(names) == 1:
        return values[0]
    if is_dict:
        return f"{{{', '.join(f'{name!r}: {value}' for name, value in zip(names, values, strict=True))}}}"
    return f"[{', '.join(values)}]"


def _parts(
    draw: random.Random, sizes: Sequence[int], world: int, equal: bool, data: str, way: str
) -> tuple[tuple[int, ...], ...]:
    """Return the examples of each rank in each batch. Only in the last batch, a rank may have none."""
    found = []
    for number, size in enumerate(sizes):
        is_last, full = number == len(sizes) - 1, 12 // world
        part: tuple[int, ...] = (full,) * world
        while way != "loop" and (is_last or not equal):
            cuts = sorted(draw.randrange(size + 1) for _ in range(world - 1))
            part = tuple(b - a for a, b in zip([0, *cuts], [*cuts, size], strict=True))
            if draw.random() < 0.3:  # as sharded data sets have it: full parts first
                part = tuple(max(0, min(size - rank * full, full)) for rank in range(world))
            if max(part) <= (full if data == "arrays" else size) and (min(part) or (is_last and data != "repeated")):
                break
        found.append(part)
    return tuple(found)
