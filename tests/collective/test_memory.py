"""Test that a table and a few blocks, never two tables, are in memory while it is made, saved, loaded and exported."""

import json
import subprocess
import sys

import pytest

from tests.distributed.launch import REPOSITORY

pytestmark = pytest.mark.full

MEASURE = """
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
        [sys.executable, "-c", MEASURE, str(tmp_path)],
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
