"""Tests of docs/collective.md: its scripts run, and its statements about them are true."""

import difflib
import re

import keras
import numpy as np
import tensorflow as tf

from tests.distributed.launch import REPOSITORY
from xmc_tf.collective.strategy import CollectiveStrategy
from xmc_tf.collective.tables.keras_embedding import ShardedEmbedding
from xmc_tf.ranks.solo import Solo

PAGE = (REPOSITORY / "docs" / "explanation" / "collective.md").read_text()
SCRIPTS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
BEFORE, AFTER = SCRIPTS[:2]


def small(script):
    assert "10_000_000" in script
    return script.replace("10_000_000", "10_000")


def test_the_scripts_differ_in_three_lines_and_an_import():
    def lines(script):
        return [line.split("#")[0].strip() for line in script.splitlines() if line.strip()]

    changes = list(difflib.ndiff(lines(BEFORE), lines(AFTER)))
    added = [line[2:] for line in changes if line.startswith("+ ")]
    removed = [line[2:] for line in changes if line.startswith("- ")]
    assert [line.split()[0] for line in added] == [
        "from",
        "strategy",
        "with",
        "model.fit(data.shard(strategy.world_size(),",
    ]
    assert removed == ["model.fit(data, epochs=3)"]


def test_the_script_runs_before_and_after():
    draw = np.random.default_rng(1)
    ids, targets = draw.integers(0, 10_000, (64, 5)), draw.standard_normal((64, 1))
    data = tf.data.Dataset.from_tensor_slices((ids, targets)).batch(16)
    names = [{"data": data}, {"data": data}]
    exec(small(BEFORE), names[0])
    exec(small(AFTER), names[1])
    assert type(names[0]["items"]) is keras.layers.Embedding
    assert type(names[1]["items"]) is ShardedEmbedding


def test_the_scripts_for_loops_and_serving_run(tmp_path):
    strategy = CollectiveStrategy(Solo())
    names = {
        "strategy": strategy,
        "tf": tf,
        "keras": keras,
        "scale": tf.Variable(2.0),
        "ids": tf.constant([1, 2], tf.int64),
        "weights": tf.Variable(tf.ones([3, 1])),
    }
    loop = next(script for script in SCRIPTS if "GradientTape" in script)
    exec(loop, names)
    (serving,) = (script for script in SCRIPTS if "Signature" in script)
    assert '"served/1"' in serving
    exec(serving.replace('"served/1"', repr(str(tmp_path / "1"))), names)
    served = tf.saved_model.load(str(tmp_path / "1")).signatures["serving_default"]
    rows = tf.gather(names["table"].variable, [1, 500])
    np.testing.assert_allclose(served(ids=tf.constant([1, 500], tf.int64))["score"], rows @ names["weights"], rtol=1e-6)


def test_files_and_modules_on_the_page_exist():
    for name in re.findall(r"\]\(\.\./\.\./([^)]+)\)", PAGE):
        assert (REPOSITORY / name).is_file(), name
    for module in re.findall(r"python -m (tests\.[\w.]+)", PAGE):
        assert (REPOSITORY / (module.replace(".", "/") + ".py")).is_file(), module
