"""Tests of export: plain TensorFlow loads the SavedModel and returns the same results."""

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.collective.threads import on_ranks, results_of
from tests.plain_tensorflow import ask, foreign_operations
from xmc_tf.collective import saved_model
from xmc_tf.collective.saved_model import Signature, export_saved_model, write_fingerprint
from xmc_tf.collective.tables import table_variable
from xmc_tf.collective.tables.lookup import lookup
from xmc_tf.collective.tables.table import make_table
from xmc_tf.common.errors import InputError
from xmc_tf.ranks.partition import Partition

ROWS, DIM = 29, 4
VALUES = np.random.default_rng(3).standard_normal((ROWS, DIM)).astype(np.float32)
BOUNDS = np.array([0, 11, 11, 29], dtype=np.int64)


def part_of(communicator, values=VALUES, name="items", bounds=BOUNDS):
    rows, dim = values.shape
    return make_table(name, rows, dim, rank=communicator.rank, partition=Partition(bounds), initializer=values)


def scorer(table, weight):
    return lambda ids: {"score": lookup(table, ids) * weight, "mean": lookup(table, ids[None], "mean")}


def export(folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_variable, "BLOCK_BYTES", 100)

        def work(communicator):
            table = part_of(communicator)
            weight = tf.Variable(2.0, name="weight")
            signatures = {"serving_default": Signature(scorer(table, weight), [tf.TensorSpec([None], tf.int64, "ids")])}
            return export_saved_model(folder, signatures, [table], communicator)

        results_of(on_ranks(3, work))


def check(folder):
    ids = np.array([0, 10, 11, 28, 28])
    answers = ask(folder, ids=ids)
    np.testing.assert_allclose(answers["score"], 2 * VALUES[ids], rtol=1e-6)
    np.testing.assert_allclose(answers["mean"][0], VALUES[ids].mean(axis=0), rtol=1e-5)
    assert foreign_operations(folder) == set()
    assert [one.shape for one in tf.saved_model.load(str(folder)).tables.values()] == [(ROWS, DIM)]


def test_the_rows_of_all_ranks_are_written_and_plain_tensorflow_reads_one_variable(tmp_path):
    export(tmp_path / "served" / "1")
    check(tmp_path / "served" / "1")
    # 7 blocks: 6 rows at a time of 11 and of 18, and the graph's own.
    files = sorted(path.name for path in (tmp_path / "served/1/variables").iterdir())
    assert len(files) == 1 + 2 + 3 + 1
    assert {path.name for path in (tmp_path / "served").iterdir()} == {"1"}
    graph = (tmp_path / "served/1/saved_model.pb").read_bytes()
    assert not any(row.tobytes() in graph for row in VALUES)


def test_a_lookup_table_of_the_model_is_exported(tmp_path):
    class Named(tf.Module):
        def __init__(self, table):
            super().__init__()
            self.sharded = table
            keys = tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([3, 28], tf.int64))
            self.names = tf.lookup.StaticHashTable(keys, default_value=0)

        def __call__(self, texts):
            return lookup(self.sharded, self.names.lookup(texts))

    def work(communicator, track=True):
        model = Named(part_of(communicator))
        signature = Signature(model, {"texts": tf.TensorSpec([None], tf.string)})
        signature = Signature(lambda inputs: model(inputs["texts"]), signature.inputs)
        export_saved_model(
            tmp_path / "served", {"serving_default": signature}, [model.sharded], communicator, track=[model] * track
        )

    results_of(on_ranks(3, work))
    loaded = tf.saved_model.load(str(tmp_path / "served"))
    answers = loaded.signatures["serving_default"](texts=tf.constant(["b", "a", "?"]))
    np.testing.assert_array_equal(answers["outputs"], VALUES[[28, 3, 0]])
    results = on_ranks(3, lambda one: work(one, track=False))
    assert all("does not own" in str(result) and isinstance(result, InputError) for result in results), results


def test_a_function_used_in_training_is_traced_again(tmp_path):
    def work(communicator):
        table = part_of(communicator, bounds=np.array([0, ROWS], dtype=np.int64))
        call = tf.function(lambda ids: lookup(table, ids), input_signature=[tf.TensorSpec([None], tf.int64, "ids")])
        call(tf.constant([1], tf.int64))
        signatures = {"serving_default": Signature(call, call.input_signature)}
        export_saved_model(tmp_path / "served", signatures, [table], communicator)

    results_of(on_ranks(1, work))
    loaded = tf.saved_model.load(str(tmp_path / "served"))
    assert len(loaded.tables) == 1


def test_a_keras_model_without_a_table(tmp_path):
    first = keras.Input([2], name="first")
    second = keras.Input([2], name="second")
    model = keras.Model({"first": first, "second": second}, keras.layers.Dense(1, name="score")(first + second))

    results_of(on_ranks(1, lambda one: export_saved_model(tmp_path / "served", model, [], one)))
    loaded = tf.saved_model.load(str(tmp_path / "served"))
    inputs = {"first": tf.constant([[1.0, 2.0]]), "second": tf.constant([[3.0, 4.0]])}
    np.testing.assert_allclose(loaded.signatures["serving_default"](**inputs)["score"], model(inputs))


def test_a_model_without_symbolic_inputs_is_refused(tmp_path):
    class Silent(keras.Model):
        def call(self, inputs):
            return inputs

    results = on_ranks(2, lambda one: export_saved_model(tmp_path / "served", Silent(), [], one))
    assert all("has no known inputs" in str(result) for result in results)
    assert not (tmp_path / "served").exists()


def test_a_full_disk_fails_on_all_ranks_and_keeps_the_previous_export(tmp_path, monkeypatch):
    export(tmp_path / "served")
    before = sorted(path.name for path in (tmp_path / "served").rglob("*"))
    fine = saved_model._write_slice

    def full(part, table, keys, low, rows):
        if rows is not None and low >= 11:
            raise OSError("No space left on device")
        fine(part, table, keys, low, rows)

    monkeypatch.setattr(saved_model, "_write_slice", full)

    def work(communicator):
        table = part_of(communicator)
        signature = Signature(lambda ids: lookup(table, ids), [tf.TensorSpec([None], tf.int64, "ids")])
        export_saved_model(tmp_path / "served", {"serving_default": signature}, [table], communicator)

    results = on_ranks(3, work)
    assert all(isinstance(result, OSError) and "rank 0 on host0" in str(result) for result in results)
    assert sorted(path.name for path in (tmp_path / "served").rglob("*")) == before
    assert [path.name for path in Path(tmp_path).glob(".served*")] == []


def test_the_fingerprint_of_an_export_is_the_same_each_time(tmp_path):
    """TensorFlow's own contains a random number."""
    module = tf.Module()
    module.weights = tf.Variable([1.0, 2.0])
    tf.saved_model.save(module, str(tmp_path))
    found = []
    for _ in range(2):
        write_fingerprint(tmp_path)
        found.append((tmp_path / "fingerprint.pb").read_bytes())
    assert found[0] == found[1]
    assert tf.saved_model.experimental.read_fingerprint(str(tmp_path)).checkpoint_hash
