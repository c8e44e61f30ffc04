"""Dot products of pairs equal the naive ones, and no step or table takes the memory of a second copy."""

import json
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.distributed.launch import REPOSITORY
from xmc_tf.collective.tables import pairs as module
from xmc_tf.collective.tables.pairs import pair_dots

pytestmark = pytest.mark.full


@pytest.mark.parametrize(("pairs", "traced"), [(0, True), (4, False), (5, True), (23, False), (23, True)])
def test_blocks_and_remainders_equal_the_naive_result(pairs, traced, monkeypatch):
    monkeypatch.setattr(module, "BLOCK_BYTES", 5 * 3 * 4)  # five pairs of width 3
    rng = np.random.default_rng(pairs)
    left, right = rng.normal(size=(4, 3)).astype(np.float32), rng.normal(size=(6, 3)).astype(np.float32)
    at_left, at_right = rng.integers(0, 4, pairs), rng.integers(0, 6, pairs)
    factors = rng.normal(size=pairs).astype(np.float32)
    order = rng.permutation(pairs)

    def call(left, right):
        with tf.GradientTape() as tape:
            tape.watch([left, right])
            dots = pair_dots(left, tf.constant(at_left, tf.int32), right, tf.constant(at_right, tf.int32))
            loss = tf.reduce_sum(tf.gather(dots, order) * factors[order])  # has a sparse gradient
        return dots, tape.gradient(loss, [left, right])

    dots, (of_left, of_right) = (tf.function(call) if traced else call)(tf.constant(left), tf.constant(right))
    np.testing.assert_allclose(dots, (left[at_left] * right[at_right]).sum(axis=1), rtol=1e-5, atol=1e-6)
    wanted = np.zeros_like(left), np.zeros_like(right)
    np.add.at(wanted[0], at_left, factors[:, None] * right[at_right])
    np.add.at(wanted[1], at_right, factors[:, None] * left[at_left])
    np.testing.assert_allclose(of_left, wanted[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(of_right, wanted[1], rtol=1e-5, atol=1e-5)


STEP_OF_PAIRS = """
import json, resource
import tensorflow as tf
from xmc_tf.collective.tables.pairs import PairScorer
from xmc_tf.collective.tables.table import make_table

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

table = make_table("labels", 4000, 512)
scorer = PairScorer(table, "features")

@tf.function(reduce_retracing=True)
def step(vectors, ids):
    with tf.GradientTape() as tape:
        tape.watch(vectors)
        losses = scorer.losses(vectors, ids, tf.ones_like(ids, tf.float32), lambda s, t: tf.square(s - t))
        loss = tf.reduce_sum(losses)
    return tape.gradient(loss, [vectors, table.variable])

def ids_of(rows):
    return tf.reshape(tf.range(rows * 500, dtype=tf.int64) * 7 % 4000, [rows, 500])

step(tf.ones([2, 512]), ids_of(2))
step(tf.ones([8, 512]), ids_of(8))
before = peak()
step(tf.ones([256, 512]), ids_of(256))
print(json.dumps(peak() - before))
"""


def test_a_step_does_not_copy_a_row_per_pair():
    command = [sys.executable, "-c", STEP_OF_PAIRS]
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=200, check=False)
    assert result.returncode == 0, result.stderr
    pairs = 256 * 500 * 512 * 4 / 2**20  # 250 MiB, several of which the naive way takes
    assert json.loads(result.stdout) < pairs / 2


LIFE_OF_A_TABLE = """
import json, resource, sys
from pathlib import Path
import tensorflow as tf
from xmc_tf.collective.checkpoints.checkpoint import load_tables, save_tables
from xmc_tf.collective.tables.lookup import lookup
from xmc_tf.collective.saved_model import Signature, export_saved_model
from xmc_tf.ranks.solo import Solo
from xmc_tf.collective.tables.table import make_table

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

def life(folder, rows):
    table = make_table("items", rows, 256)
    made = peak()
    # After a sparse update, as in a step, reading the whole variable copies it.
    table.variable.scatter_sub(tf.IndexedSlices(tf.ones([1, 256]), tf.constant([0])))
    save_tables(folder / "c", [table], Solo())
    saved = peak()
    load_tables(folder / "c", [table], Solo())
    loaded = peak()
    signature = Signature(lambda ids: lookup(table, ids), [tf.TensorSpec([None], tf.int64, "ids")])
    export_saved_model(folder / "s", {"serving_default": signature}, [table], Solo())
    return made, saved, loaded, peak()

folder = Path(sys.argv[1])
life(folder / "small", 40_000)  # the memory of the code and its blocks
before = peak()
print(json.dumps([at - before for at in life(folder / "large", 200_000)]))
"""


def test_a_table_is_in_memory_once(tmp_path):
    pytest.importorskip("tensorflow")
    result = subprocess.run(
        [sys.executable, "-c", LIFE_OF_A_TABLE, str(tmp_path)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    table = 200_000 * 256 * 4 / 2**20  # 195 MiB
    for stage, grown in zip(("made", "saved", "loaded", "exported"), json.loads(result.stdout), strict=True):
        assert grown < 1.4 * table, f"{stage}: {grown:.0f} MiB for a table of {table:.0f} MiB"
