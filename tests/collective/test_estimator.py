"""Tests of the estimator on a single process."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.refusals import refused
from xmc_tf.collective.checkpoints.manifest import read_manifest
from xmc_tf.collective.estimator import EvalSpec, TrainSpec
from xmc_tf.collective.strategy import CollectiveStrategy
from xmc_tf.ranks.solo import Solo

ROWS = 40


def numbers(count=100):
    draw = np.random.default_rng(8)
    return draw.integers(0, ROWS, (count, 3)), draw.standard_normal((count, 1)).astype(np.float32)


def batches(count=100, size=10):
    return tf.data.Dataset.from_tensor_slices(numbers(count)).batch(size)


def make_estimator(folder, accumulate=1, exact=False, **options):
    """Return a new estimator with new variables, as a new process would make it."""
    strategy = CollectiveStrategy(Solo(), seed=1, exact=exact)

    def make_model():
        ids = keras.Input([3], dtype=tf.int64, name="ids")
        with strategy.embedding_scope(shard_above=0):
            items = keras.layers.Embedding(ROWS, 4, name="items")
        start = keras.initializers.GlorotUniform(seed=4)
        score = keras.layers.Dense(1, kernel_initializer=start, name="score")(keras.ops.mean(items(ids), axis=1))
        model = keras.Model(ids, score)
        model.compile(strategy.optimizer(keras.optimizers.Adam(0.05), accumulate=accumulate), "mse", metrics=["mae"])
        return model

    return strategy.estimator(make_model, folder, **options)


def weights(estimator):
    (table,) = estimator.strategy.tables
    kept = [table.variable, *(table.slots[name] for name in sorted(table.slots)), *estimator.model.layers[-1].variables]
    return [one.numpy() for one in kept]


@pytest.mark.parametrize(("accumulate", "exact"), [(1, True), (2, False)])
def test_an_interrupted_training_has_the_result_of_an_uninterrupted_one(tmp_path, accumulate, exact):
    uninterrupted = make_estimator(tmp_path / "a", accumulate, exact, save_every=7)
    assert uninterrupted.train(batches, max_steps=25) == 25
    first = make_estimator(tmp_path / "b", accumulate, exact, save_every=7)
    assert first.train(batches, max_steps=9) == 9
    assert read_manifest(first.checkpoint).step == 9
    second = make_estimator(tmp_path / "b", accumulate, exact, save_every=7)
    assert second.train(batches, max_steps=25) == 25
    for one, other in zip(weights(uninterrupted), weights(second), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert second.train(batches, max_steps=25) == 25


def test_evaluation_uses_all_data_with_any_batch_size(tmp_path):
    estimator = make_estimator(tmp_path / "a")
    estimator.train(batches, max_steps=3)
    ids, targets = numbers(97)
    errors = estimator.model(ids).numpy() - targets
    results = make_estimator(tmp_path / "a").evaluate(lambda: batches(97, 10))
    assert results.keys() == {"loss", "mae"}
    np.testing.assert_allclose(results["loss"], np.square(errors).mean(), rtol=1e-5)
    np.testing.assert_allclose(results["mae"], np.abs(errors).mean(), rtol=1e-5)
    two = estimator.evaluate(lambda: batches(97, 10), steps=2)
    np.testing.assert_allclose(two["mae"], np.abs(errors[:20]).mean(), rtol=1e-5)


@pytest.mark.parametrize(("steps", "shown"), [(10, ["10/10"]), (25, ["10/10", "10/10", "5/5"])])
def test_progress_counts_the_steps_that_are_trained(tmp_path, capsys, steps, shown):
    make_estimator(tmp_path / "a", save_every=1000 if steps == 10 else 10).train(batches, max_steps=steps)
    assert re.findall(r"^\d+/\d+", capsys.readouterr().out, re.MULTILINE) == shown


def test_train_and_evaluate_learns_evaluates_at_checkpoints_and_exports(tmp_path):
    estimator = make_estimator(tmp_path / "a", save_every=10)
    before = estimator.evaluate(batches)
    after = estimator.train_and_evaluate(TrainSpec(batches, 30), EvalSpec(batches))
    assert after["loss"] < 0.7 * before["loss"]
    seen = []
    for file in (tmp_path / "a" / "eval").iterdir():
        for event in tf.compat.v1.train.summary_iterator(str(file)):
            seen += [(event.step, value.tag) for value in event.summary.value]
    assert sorted(seen) == [(step, tag) for step in (10, 20, 30) for tag in ("loss", "mae")]
    # A new process exports the model without loading the optimizer's state.
    make_estimator(tmp_path / "a").export_saved_model(tmp_path / "served" / "1")
    served = tf.saved_model.load(str(tmp_path / "served" / "1"))
    ids, _ = numbers(10)
    np.testing.assert_allclose(
        served.signatures["serving_default"](ids=tf.constant(ids))["score"], estimator.model(ids), rtol=1e-5, atol=1e-6
    )


def test_input_functions_with_a_parameter_receive_an_input_context(tmp_path):
    asked = []

    def own_share(context):
        asked.append((context.num_input_pipelines, context.input_pipeline_id))
        return batches()

    make_estimator(tmp_path / "a").train(own_share, max_steps=2)
    assert asked == [(1, 0)]


def test_invalid_models_and_options_are_refused(tmp_path):
    strategy = CollectiveStrategy(Solo())
    layers = [keras.Input([2]), keras.layers.Dense(1)]
    refused("model without an optimizer", strategy.estimator, keras.Sequential(layers), tmp_path)
    refused("expected: a compiled Keras model", strategy.estimator, lambda: "model", tmp_path)
    refused("save_every", make_estimator, tmp_path, save_every=0)
    refused("have no batch", make_estimator(tmp_path).evaluate, lambda: batches(0))
