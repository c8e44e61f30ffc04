"""Checks on any number of ranks: the features of Keras 3 that a user of the strategy touches."""

import contextlib
import inspect
import logging
import os
import tempfile
from contextlib import contextmanager

import keras
import numpy as np
import pytest
import tensorflow as tf

from xmc_tf import CollectiveStrategy
from xmc_tf.collective.tables.keras_embedding import ShardedEmbedding
from xmc_tf.common.errors import InputError

ROWS, BATCHES = 40, 6
CALLBACKS = keras.callbacks


def batches(world, batch=4, count=BATCHES, seed=0):
    """Return this rank's share of batches, and all of them for one process."""
    rng = np.random.default_rng(seed)
    # No id twice in a step: of its own sparse gradients, Keras 3 squares those of repeated ids one by one.
    each = [rng.permutation(ROWS)[: 3 * batch * world.size] for _ in range(count)]
    ids = np.concatenate(each).reshape(-1, 3)
    targets = (ids % 7).mean(axis=1, keepdims=True).astype(np.float32)
    whole = tf.data.Dataset.from_tensor_slices((ids, targets))
    return whole.shard(world.size, world.rank).batch(batch), whole.batch(batch * world.size)


def constant(seed, *shape):
    return keras.initializers.Constant(np.random.default_rng(seed).normal(size=shape) * 0.3)


@contextmanager
def noted():
    """Yield the log messages of the block."""
    notes = []
    handler = logging.Handler()
    handler.emit = lambda record: notes.append(record.getMessage())
    logging.getLogger("xmc_tf").addHandler(handler)
    try:
        yield notes
    finally:
        logging.getLogger("xmc_tf").removeHandler(handler)


def layers():
    return [
        keras.Input([3], dtype="int64"),
        keras.layers.Embedding(ROWS, 4, embeddings_initializer=keras.initializers.Constant(0.1), name="items"),
        keras.layers.Flatten(),
        keras.layers.Dense(3, "tanh", kernel_initializer=constant(1, 12, 3)),
        keras.layers.Dense(1, kernel_initializer=constant(2, 3, 1), dtype="float32"),
    ]


def over_ranks(world, optimizer, **options):
    """Return the strategy, and a model with a sharded embedding."""
    strategy = CollectiveStrategy(world, shard_above=0)
    with strategy.scope(), strategy.embedding_scope():
        model = keras.Sequential(layers())
        model.compile(optimizer, "mse", metrics=["mae"], **options)
    assert isinstance(model.layers[0], ShardedEmbedding)
    return strategy, model


def alone(optimizer, **options):
    """Return the same model as plain Keras makes it."""
    model = keras.Sequential(layers())
    model.compile(optimizer, "mse", metrics=["mae"], **options)
    assert type(model.layers[0]) is keras.layers.Embedding
    return model


def whole_table(world, model):
    return np.concatenate(world.allgather(model.layers[0].table.variable.numpy()))


def compare(world, optimizer, epochs=1, atol=2e-5, **options):
    """Train over the ranks and in one process of plain Keras; all weights must be equal."""
    ours, whole = batches(world)
    strategy, model = over_ranks(world, optimizer(), **options)
    plain = alone(optimizer(), **options)
    before = plain.get_weights()
    history = model.fit(ours, epochs=epochs, verbose=0)
    expected = plain.fit(whole, epochs=epochs, verbose=0)
    np.testing.assert_allclose(whole_table(world, model), plain.layers[0].embeddings, atol=atol)
    for mine, theirs, first in zip(model.get_weights()[1:], plain.get_weights()[1:], before[1:], strict=True):
        np.testing.assert_allclose(mine, theirs, atol=atol)
        assert np.abs(theirs - first).max() > 1e-4
    np.testing.assert_allclose(history.history["loss"], expected.history["loss"], rtol=1e-3)
    assert strategy.check_replicas(model.trainable_variables) == 4
    return strategy, model, plain


def check_callbacks_decide_the_same(world):
    """Ranks with different data see the same metrics, so that they stop and change the learning rate together."""
    ours, _ = batches(world, seed=1)
    _, model = over_ranks(world, keras.optimizers.SGD(0.05))
    held_out = batches(world, seed=5 + world.rank)[0]  # other data on each rank
    stop = CALLBACKS.EarlyStopping("val_loss", patience=0, min_delta=10.0)
    slower = CALLBACKS.ReduceLROnPlateau("val_mae", factor=0.5, patience=0, min_delta=10.0, cooldown=0)
    seen = []
    note = CALLBACKS.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(dict(logs)))
    history = model.fit(ours, validation_data=held_out, epochs=6, callbacks=[slower, stop, note], verbose=0)
    assert set(seen[0]) >= {"loss", "mae", "val_loss", "val_mae"}
    assert len(seen) == 2  # the second epoch is not better by 10
    everyone = world.allgather((seen, float(model.optimizer.learning_rate), history.history["loss"]))
    assert all(one == everyone[0] for one in everyone)
    assert np.isclose(everyone[0][1], 0.025)
    results = world.allgather(model.evaluate(held_out, verbose=0))
    assert all(one == results[0] for one in results)
    assert len(results[0]) == 2
    schedule = CALLBACKS.LearningRateScheduler(lambda epoch, rate: 0.25)
    histograms = CALLBACKS.TensorBoard(tempfile.mkdtemp(), histogram_freq=1, write_images=True)  # of a rank's own rows
    model.fit(ours, epochs=1, callbacks=[schedule, histograms], verbose=0)
    assert float(model.optimizer.learning_rate) == 0.25


def check_a_nan_on_one_rank_stops_all(world):
    """TerminateOnNaN stops all ranks at the same batch, and the log names the rank."""
    _, model = over_ranks(world, keras.optimizers.SGD(0.01))
    guilty, seen = world.size - 1, []
    targets = np.zeros((12, 1), np.float32)
    targets[4] = np.nan if world.rank == guilty else 0.0
    note = CALLBACKS.LambdaCallback(on_train_batch_end=lambda batch, logs: seen.append(batch))
    callbacks = [CALLBACKS.TerminateOnNaN(), note]
    with noted() as notes:
        model.fit(np.ones((12, 3), int), targets, batch_size=2, shuffle=False, callbacks=callbacks, verbose=0)
    assert world.allgather(seen) == [[0, 1, 2]] * world.size
    assert world.size == 1 or any(f"batch 2: the loss is not finite on ranks [{guilty}]" in one for one in notes)


def check_saved_models_are_whole(world):
    """Files have the whole table and the optimizer's state; they load over ranks and in one process."""
    ours, whole = batches(world)
    _, model, _ = compare(world, lambda: keras.optimizers.Adagrad(0.1))
    folder = world.broadcast(tempfile.mkdtemp())
    files = CALLBACKS.ModelCheckpoint(os.path.join(folder, "best.keras"), save_best_only=True, monitor="loss")
    weights = CALLBACKS.ModelCheckpoint(os.path.join(folder, "last.weights.h5"), save_weights_only=True)
    model.fit(ours, epochs=1, callbacks=[files, weights], verbose=0)
    ids = np.arange(ROWS - 1).reshape(-1, 3)
    expected = np.asarray(model(ids))
    world.barrier()
    assert sorted(os.listdir(folder)) == ["best.keras", "last.weights.h5"]

    # In one process, as on a machine without xmc_tf.
    plain = keras.models.load_model(os.path.join(folder, "best.keras"))
    assert type(plain.layers[0]) is keras.layers.Embedding
    assert type(plain.optimizer) is keras.optimizers.Adagrad
    np.testing.assert_allclose(plain(ids), expected, atol=1e-6)
    from_weights = alone("sgd")
    from_weights.load_weights(os.path.join(folder, "last.weights.h5"))
    np.testing.assert_allclose(from_weights(ids), expected, atol=1e-6)

    # Over the ranks, where training continues as in one process, also in the other mode.
    again = CollectiveStrategy(world, shard_above=0, exact=True)
    with again.scope(), again.embedding_scope():
        loaded = keras.models.load_model(os.path.join(folder, "best.keras"))
    assert isinstance(loaded.layers[0], ShardedEmbedding)
    np.testing.assert_allclose(loaded(ids), expected, atol=1e-6)
    model.load_weights(os.path.join(folder, "last.weights.h5"))
    for one, data in ((loaded, ours), (plain, whole), (model, ours)):
        one.fit(data, epochs=1, verbose=0)
    np.testing.assert_allclose(loaded(ids), plain(ids), atol=2e-5)
    np.testing.assert_allclose(model(ids), plain(ids), atol=2e-5)
    loaded.save(os.path.join(folder, "exact.keras"))
    world.barrier()
    state = keras.models.load_model(os.path.join(folder, "exact.keras")).optimizer.variables
    for mine, theirs in zip(state, plain.optimizer.variables, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=2e-5)
    for method, argument in ((model.save, "filepath"), (model.save_weights, "overwrite"), (model.export, "format")):
        assert argument in inspect.signature(method).parameters  # as notebooks show
    if world.size > 1:
        with pytest.raises(InputError, match=r"strategy\.export_saved_model"):
            model.export(os.path.join(folder, "exported"))
        with pytest.raises(
            OSError, match="nowhere" if world.rank == 0 else "rank 0 could not save the model: .*nowhere"
        ):
            model.save(os.path.join(folder, "nowhere", "model.keras"))
        assert world.allgather(world.rank) == list(range(world.size))


class OwnStep(keras.Sequential):
    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=data[1], y_pred=self(data[0], training=True))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


class BruteForceRetrieval:
    """Keeps a copy of candidates, as the layer of keras-rs with this name does."""

    def __init__(self, candidates):
        self.candidates = keras.Variable(candidates)


class Largest(keras.metrics.Metric):
    def update_state(self, y_true, y_pred, sample_weight=None):
        """Keep nothing: only its class matters."""

    def result(self):
        return 0.0


def check_what_is_not_over_all_ranks_is_reported(world):
    """Errors and warnings name the line to change."""
    ours, _ = batches(world)
    strategy = CollectiveStrategy(world, shard_above=0)
    if world.size == 1:
        return
    with strategy.embedding_scope():
        outside = keras.Sequential(layers())
    outside.compile("adam", "mse")
    with pytest.raises(InputError, match=r"move model\.compile"):
        outside.fit(ours, verbose=0)
    optimizer = keras.optimizers.Adam()
    with pytest.raises(InputError, match=r"items.* is sharded.*\n.*\n.*\n.*move model\.compile"):
        optimizer.apply([tf.zeros(one.shape) for one in outside.trainable_variables], outside.trainable_variables)
    embeddings = outside.layers[0].embeddings
    for use, fix in (
        (lambda: embeddings.assign_sub(tf.ones([ROWS, 4])), r"SAM(.|\n)*leave the variables of embeddings out"),
        (
            lambda: tf.nn.nce_loss(embeddings, tf.ones([ROWS]), tf.ones([1, 1], tf.int64), tf.ones([1, 4]), 2, ROWS),
            "and of the sampled",
        ),
        (lambda: BruteForceRetrieval(embeddings), r"the layer TopK\(layer, k\)"),
    ):
        with pytest.raises(InputError, match=fix):
            use()
    rows = strategy.table("rows", 4, 2).variable
    with pytest.raises(InputError, match=r"rows.* is sharded.*\n.*\n.*\n.*strategy\.optimizer"):
        keras.optimizers.SGD().apply_gradients([(tf.zeros_like(rows), rows)])
    with pytest.raises(InputError, match="jit_compile=True"), strategy.scope():
        outside.compile("adam", "mse", jit_compile=True)

    with noted() as notes:
        plain = keras.Sequential(layers())
        with strategy.scope():
            plain.compile("sgd", "mse")
        assert any("was made outside strategy.embedding_scope()" in note for note in notes)
        plain.compile("sgd", "mse")
        plain.fit(ours, verbose=0)
    assert any("each of the" in note for note in notes) == (world.rank == 0)

    # A step of the user's own, which does not weight its loss by the number of examples of the rank.
    with noted() as notes, strategy.scope():
        own = OwnStep([keras.layers.Flatten(), keras.layers.Dense(1)])
        own.compile("sgd", "mse", metrics=[Largest()])
    assert any("metric 'largest'" in note for note in notes) == (world.rank == 0)
    count = 4 + (world.rank == 0)
    with pytest.raises(InputError, match=r"^train_step .*different sizes\n.*\n.*strategy\.scale_loss\(loss\)"):
        own.fit(np.ones((count, 3)), np.ones((count, 1)), batch_size=8, verbose=0)

    # Without scopes around the layers, the ranks have different initial values, which the first step shows.
    keras.utils.set_random_seed(world.rank)
    unbuilt = keras.Sequential([keras.layers.Embedding(ROWS, 4), keras.layers.Flatten(), keras.layers.Dense(1)])
    with strategy.scope():
        unbuilt.compile("sgd", "mse")
    with pytest.raises(InputError, match="differ from rank 0's"):
        unbuilt.fit(ours, verbose=0)


def check_a_backup_and_weights_of_another_optimizer(world):
    """BackupAndRestore resumes from a new folder, and weights load into a model with another optimizer."""
    ours, _ = batches(world)
    folder = os.path.join(world.broadcast(tempfile.mkdtemp()), "new", "backup")
    strategy, model = over_ranks(world, keras.optimizers.Adagrad(0.1))

    def stop(batch, logs):
        if batch == 3:
            raise KeyboardInterrupt

    for callback in (CALLBACKS.LambdaCallback(on_train_batch_end=stop), CALLBACKS.LambdaCallback()):
        backup = CALLBACKS.BackupAndRestore(folder, save_freq=2)
        with contextlib.suppress(KeyboardInterrupt):
            model.fit(ours, epochs=2, callbacks=[backup, callback], verbose=0)
        world.barrier()
        assert os.path.exists(folder) == (backup.model.optimizer.iterations < BATCHES)
    path = os.path.join(os.path.dirname(os.path.dirname(folder)), "adagrad.weights.h5")
    model.save_weights(path)
    world.barrier()
    _, other = over_ranks(world, keras.optimizers.Adam(0.1))
    other.optimizer.build(other.trainable_variables)
    with pytest.warns(UserWarning, match="not loaded|Skipping"):
        other.load_weights(path)
    np.testing.assert_array_equal(whole_table(world, other), whole_table(world, model))
    model.save(path.replace(".weights", ""))  # a file of HDF5, as before Keras 3
    with strategy.scope(), strategy.embedding_scope():
        copy = keras.models.model_from_json(model.to_json())
    copy.set_weights(model.get_weights())
    assert world.size == 1 or isinstance(copy.optimizer, keras.optimizers.Adagrad)
    np.testing.assert_array_equal(whole_table(world, copy), whole_table(world, model))
    if world.size > 1:
        line = rf"^table items\S* has rows 0 to 39; ids out of range on rank {world.size - 1}: 40$"
        wrong = np.full((4, 3), ROWS * (world.rank == world.size - 1))
        for use in (model.predict, lambda ids, **options: model.fit(ids, np.ones([4, 1]), **options)):
            with pytest.raises(InputError, match=line):
                use(wrong, verbose=0)
