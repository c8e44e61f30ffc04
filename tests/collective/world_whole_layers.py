"""Checks on any number of ranks: a sharded layer is a whole layer to its user, or an error names what to do."""

import os
import tempfile

import keras
import numpy as np
import pytest
import tensorflow as tf

from xmc_tf import CollectiveStrategy, TiedHead, TopK
from xmc_tf.collective.tables.keras_embedding import ShardedEmbedding
from xmc_tf.common.errors import InputError

ROWS, WIDTH, STEPS = 23, 4, 3
ops = keras.ops


def matrix(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@keras.saving.register_keras_serializable()
class Pretrained(keras.initializers.Initializer):
    """A user's initializer, a function of the shape."""

    def __call__(self, shape, dtype=None):
        return matrix(3, *shape)


class Scaled(keras.layers.Embedding):
    """A user's subclass, with other arguments."""

    def __init__(self, count, factor=3.0, **options):
        super().__init__(count, WIDTH, **options)
        self.factor = factor

    def call(self, inputs):
        return self.factor * super().call(inputs)

    def get_config(self):
        config = super().get_config()
        rows, _ = config.pop("input_dim"), config.pop("output_dim")
        return {**config, "count": rows, "factor": self.factor}


class Recommender(keras.Model):
    """Next items from the mean of those before: SASRec's head without its transformer."""

    def __init__(self, head):
        super().__init__()
        self.items = keras.layers.Embedding(ROWS, WIDTH, embeddings_initializer=Pretrained(), name="items")
        self.mix = keras.layers.Dense(WIDTH, kernel_initializer=keras.initializers.Constant(matrix(1, WIDTH, WIDTH)))
        self.head = head(self.items)

    def call(self, ids):
        return self.head(self.mix(self.items(ids)))


def plain_head(items):
    return lambda inputs: ops.matmul(inputs, ops.transpose(items.embeddings))


def scopes(world):
    strategy = CollectiveStrategy(world, shard_above=0)
    return strategy, strategy.scope(), strategy.embedding_scope()


def trained(model, ids, batch):
    model.compile(keras.optimizers.SGD(0.5), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    losses = model.fit(ids, (ids + 1) % ROWS, batch_size=batch, shuffle=False, epochs=2, verbose=0).history["loss"]
    return losses, model.predict(ids, verbose=0)


def check_top_k_is_that_of_the_whole_table(world):
    """Exact, also with equal scores, more rows than a rank has, and ranks without queries."""
    strategy = CollectiveStrategy(world, shard_above=0)
    for rows, k in ((ROWS, 10), (ROWS, ROWS), (max(1, world.size - 1), 1)):
        values = np.round(matrix(0, rows, WIDTH))  # whole numbers, so that scores are equal and sums are exact
        with strategy.embedding_scope():
            table = strategy.variable(f"top_{rows}_{k}", values.shape, values)
        queries = np.round(matrix(world.rank, world.rank % 2 * 5 + (world.size == 1), 2, WIDTH))
        for find in (strategy.top_k, tf.function(strategy.top_k)):
            scores, ids = find(table, tf.constant(queries), k)
            expected = tf.math.top_k(queries @ values.T, k)
            np.testing.assert_array_equal(scores, expected.values)
            np.testing.assert_array_equal(ids, expected.indices)
    with tf.GradientTape() as tape:
        best = tf.reduce_sum(strategy.top_k(table, tf.ones([1, WIDTH]), 1)[0])
    at = np.argmax(values.sum(axis=1))
    whole = np.zeros_like(values)
    for start, part in world.allgather(
        (table.start, tf.convert_to_tensor(tape.gradient(best, table.variable)).numpy())
    ):
        whole[start : start + len(part)] = part
    np.testing.assert_array_equal(whole, np.eye(len(values))[at][:, None] * np.full([1, WIDTH], world.size))
    with pytest.raises(InputError, match=rf"expected: 1 to {len(values)}, its rows\n  received: 99"):
        strategy.top_k(table, tf.ones([1, WIDTH]), 99)
    with pytest.raises(InputError, match=r"a last dimension of 4\n  received: shape \(1, 3\)"):
        strategy.top_k(table, tf.ones([1, 3]), 1)


def check_a_tied_head_trains_as_in_plain_keras(world):
    """Losses, weights and predictions are those of one process, where ``embeddings`` is a tensor."""
    strategy, scope, embedding_scope = scopes(world)
    ids = np.random.default_rng(5).integers(0, ROWS, (4 * world.size * STEPS, 3))
    mine = ids.reshape(STEPS, world.size, 4, 3)[:, world.rank].reshape(-1, 3)
    expected, predictions = trained(plain := Recommender(plain_head), ids, 4 * world.size)
    with scope, embedding_scope:
        model = Recommender(TiedHead)
        losses, predicted = trained(model, mine, 4)
    assert isinstance(model.items, ShardedEmbedding)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    assert expected[-1] < expected[0]
    of_mine = predictions.reshape(STEPS, world.size, 4, 3, ROWS)[:, world.rank].reshape(predicted.shape)
    np.testing.assert_allclose(predicted, of_mine, atol=2e-5)
    for ours, theirs in zip(model.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-5)

    if world.size > 1:  # a program that uses the table as a tensor
        with scopes(world)[1], strategy.embedding_scope():
            untold = Recommender(plain_head)
            with pytest.raises(ValueError, match=r"needs all of its rows(.|\n)*TiedHead\(layer\)\(x\)(.|\n)*top_k"):
                trained(untold, mine, 4)

    # In one file, which a plain process loads; the rows are shared there, too.
    inputs = keras.Input([3], dtype="int64")
    with strategy.scope(), strategy.embedding_scope():
        items = keras.layers.Embedding(ROWS, WIDTH, embeddings_initializer=Pretrained())
        rows = items(inputs)
        both = keras.Model(inputs, [TiedHead(items, use_bias=True)(rows), *TopK(items, 3)(rows[:, -1])])
    path = world.broadcast(tempfile.mkdtemp()) + "/both.keras"
    both.save(path)
    world.barrier()
    loaded = keras.models.load_model(path)
    assert [len(one.weights) for one in (both, loaded)] == [2, 2]
    for ours, theirs in zip(both(ids[:4]), loaded(ids[:4]), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    served = tf.saved_model.load(strategy.export_saved_model(os.path.dirname(path) + "/served", both))
    by_server = served.signatures["serving_default"](tf.constant(ids[:4]))
    np.testing.assert_array_equal(by_server[both.output_names[2]], both(ids[:4])[2])


def check_what_layers_and_models_say_is_of_the_whole_table(world):
    """Copies, assignments, counts and files have all rows; what would have a part of them is an error."""
    strategy, scope, embedding_scope = scopes(world)
    with scope, embedding_scope:
        layer = keras.layers.Embedding(ROWS, WIDTH, embeddings_initializer=Pretrained(), name="items")
        model = keras.Sequential([keras.Input([2], dtype="int64"), layer, keras.layers.Flatten()])
        model.add(keras.layers.Dense(1))
        model.compile(keras.optimizers.SGD(0.5), "mse")
    assert tuple(layer.embeddings.shape) == (ROWS, WIDTH)
    assert layer.count_params() == ROWS * WIDTH
    assert model.count_params() == ROWS * WIDTH + 2 * WIDTH + 1
    assert f"({ROWS}, {WIDTH})" in repr(layer.embeddings)
    np.testing.assert_array_equal(layer.get_weights()[0], matrix(3, ROWS, WIDTH))
    np.testing.assert_array_equal(np.array(layer.embeddings), matrix(3, ROWS, WIDTH))
    layer.set_weights([matrix(4, ROWS, WIDTH)])
    np.testing.assert_array_equal(layer(np.arange(ROWS)), matrix(4, ROWS, WIDTH))
    with strategy.scope(), strategy.embedding_scope():
        copy = keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    np.testing.assert_array_equal(copy.layers[0].get_weights()[0], matrix(4, ROWS, WIDTH))

    # The weights of the best epoch are set again, without a whole table on a rank.
    ids = np.array([[0, 1], [2, 3]])
    stop = keras.callbacks.EarlyStopping("loss", patience=0, min_delta=1e9, restore_best_weights=True)
    first = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: epoch or seen.append(layer.get_weights()))
    seen = []
    model.fit(ids, np.ones([2, 1]), epochs=4, callbacks=[first, stop], verbose=0)
    np.testing.assert_array_equal(layer.get_weights()[0], seen[0][0])
    assert world.size == 1 or len(stop.best_weights[0]) == layer.table.local_rows

    folder = world.broadcast(tempfile.mkdtemp())
    model.save(os.path.join(folder, "old.h5"))
    model.save_weights(os.path.join(folder, "new.weights.h5"))
    world.barrier()
    for file in ("old.h5", "new.weights.h5"):
        plain = keras.Sequential([keras.Input([2], dtype="int64"), keras.layers.Embedding(ROWS, WIDTH, name="items")])
        plain.add(keras.layers.Flatten())
        plain.add(keras.layers.Dense(1))
        plain.load_weights(os.path.join(folder, file))
        np.testing.assert_array_equal(plain.layers[0].get_weights()[0], seen[0][0])
        layer.set_weights([np.zeros([ROWS, WIDTH])])
        model.load_weights(os.path.join(folder, file))
        np.testing.assert_array_equal(layer.get_weights()[0], seen[0][0])
    if world.size == 1:
        return

    table = layer.embeddings
    uses = {
        "take": lambda: ops.take(table, ids, axis=0),
        "gather": lambda: tf.gather(table, ids),
        "lookup": lambda: tf.nn.embedding_lookup(table, ids),
        "slice": lambda: table[:2],
        "product": lambda: ops.matmul(ops.ones([1, WIDTH]), ops.transpose(table)),
        "number": lambda: 2.0 * table,
        "sum": lambda: tf.reduce_sum(table),
        "tensor": lambda: ops.convert_to_numpy(ops.abs(table)),
    }
    for name, use in uses.items():
        with pytest.raises(ValueError, match=r"TiedHead\(layer\)\(x\)"):
            print(name, use())
    with pytest.raises(InputError, match=r"shape \(23, 4\)\n  received: shape \(12, 4\)"):
        table.assign(np.zeros([12, 4]))
    with pytest.raises(TypeError, match=r"with strategy\.embedding_scope"):
        keras.models.clone_model(model)
    with pytest.raises(InputError, match=r"tf\.train\.Checkpoint handles(.|\n)*save_training"):
        tf.train.Checkpoint(model=model).save(os.path.join(folder, f"partial-{world.rank}"))
    with pytest.raises(InputError, match=r"strategy\.export_saved_model\(folder, model\)"):
        tf.saved_model.save(model, os.path.join(folder, f"partial-{world.rank}"))
    with pytest.raises(InputError, match="enable_lora is not supported"):
        layer.enable_lora(2)
    with pytest.raises(InputError, match="quantize is not supported"):
        layer.quantize("int8")


def check_subclasses_and_initializers_are_sharded(world):
    """Subclasses of the user and of Keras train as plain ones do, and are saved as them."""
    ids = np.arange(2 * world.size)[:, None] % ROWS
    strategy, _, _ = scopes(world)
    with pytest.raises(InputError, match="embeddings_regularizer is not supported"), strategy.embedding_scope():
        Scaled(ROWS, embeddings_regularizer="l2")

    def values(shape, dtype):
        return matrix(6, *shape)

    def make():
        inputs = keras.Input([1], dtype="int64")
        options = [
            {"embeddings_initializer": values, "name": "function"},
            {"embeddings_initializer": keras.initializers.Constant(matrix(7, ROWS, WIDTH)), "name": "constant"},
            {"embeddings_initializer": "identity", "name": "identity"},
        ]
        layers = [keras.layers.Embedding(ROWS, WIDTH, **one) for one in options]
        layers.append(Scaled(ROWS, embeddings_initializer=Pretrained(), name="own"))
        found = keras.layers.Concatenate()([layer(inputs) for layer in layers])
        model = keras.Model(inputs, keras.layers.Flatten()(found))
        model.compile(keras.optimizers.SGD(0.5), "mse")
        return model, layers

    with strategy.scope(), strategy.embedding_scope():
        model, layers = make()
    plain, plain_layers = make()
    targets = np.ones([len(ids), 4 * WIDTH])
    model.fit(ids.reshape(-1, 2, 1)[world.rank], targets[:2], batch_size=2, shuffle=False, verbose=0)
    plain.fit(ids, targets, batch_size=len(ids), shuffle=False, verbose=0)
    path = world.broadcast(tempfile.mkdtemp()) + "/model.keras"
    model.save(path)
    world.barrier()
    known = {"Scaled": Scaled, "values": values}
    loaded = keras.models.load_model(path, custom_objects=known)
    with strategy.scope(), strategy.embedding_scope():
        again = keras.models.load_model(path, custom_objects=known)
    for layer, whole in zip(layers, plain_layers, strict=True):
        assert isinstance(layer, type(whole))
        assert list(layer.table.variable.shape) == [layer.table.local_rows, WIDTH]
        assert type(loaded.get_layer(layer.name)) is type(whole)
        assert again.get_layer(layer.name).is_sharded
        np.testing.assert_allclose(*layer.get_weights(), *whole.get_weights(), atol=1e-5)
        for other in (loaded, again):
            np.testing.assert_array_equal(*layer.get_weights(), *other.get_layer(layer.name).get_weights())

    with strategy.embedding_scope(shard_above=10**6):
        small = Scaled(ROWS, embeddings_initializer=Pretrained())
    np.testing.assert_allclose(small(ids), 3.0 * matrix(3, ROWS, WIDTH)[ids], rtol=1e-6)
    assert not small.is_sharded
    if not hasattr(keras.layers, "ReversibleEmbedding"):  # Keras 3.10 and 3.11
        return
    options = {"embeddings_initializer": Pretrained(), "logit_soft_cap": 2.0}
    with strategy.scope(), strategy.embedding_scope():
        layer = keras.layers.ReversibleEmbedding(ROWS, WIDTH, **options)
        untied = keras.layers.ReversibleEmbedding(ROWS, WIDTH, tie_weights=False, **options)
    plain = keras.layers.ReversibleEmbedding(ROWS, WIDTH, **options)
    np.testing.assert_allclose(layer(layer(ids), reverse=True), plain(plain(ids), reverse=True), atol=1e-6)
    assert layer.is_sharded
    assert untied(untied(ids), reverse=True).shape == (len(ids), 1, ROWS)
    assert [tuple(one.shape) for one in untied.get_weights()] == [(ROWS, WIDTH), (WIDTH, ROWS)]
    with pytest.raises(InputError, match="quantize is not supported"):
        layer.quantize("int8")
    with strategy.embedding_scope(shard_above=10**6):
        small = keras.layers.ReversibleEmbedding(ROWS, WIDTH)
    small.build()
    small.quantize("int8")
    assert small.quantization_mode == "int8"
