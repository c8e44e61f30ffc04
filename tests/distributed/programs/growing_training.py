"""Train a small model with a growing table of strings: ``growing_training.py TASK FOLDER``.

``save``: six steps, a checkpoint, then six more, which is the uninterrupted run.
``resume``: loads the checkpoint, makes the last six steps, and exports.
"""

import json
import os
import sys
from pathlib import Path

if "OMPI_COMM_WORLD_RANK" in os.environ:
    from mpi4py import MPI  # noqa: F401  first, so that it initialises MPI with the thread level it needs

import keras
import numpy as np
import tensorflow as tf

from xmc_tf.collective.checkpoints.training_state import load_training, save_training
from xmc_tf.collective.dynamic_tables.eviction import LeastFrequent
from xmc_tf.collective.dynamic_tables.keras_embedding import GrowingEmbedding
from xmc_tf.collective.strategy import CollectiveStrategy

BATCH, HALF, KINDS = 12, 6, 60
TASK, FOLDER = sys.argv[1], Path(sys.argv[2])

strategy = CollectiveStrategy(seed=5)
rank, size = strategy.rank(), strategy.world_size()
with strategy.scope(), strategy.embedding_scope():
    ids = keras.Input([4], dtype=tf.string, name="ids")
    items = GrowingEmbedding(6, name="items", admit_after=2, evict=LeastFrequent(max_rows=20, every=4))
    model = keras.Model(ids, keras.layers.Dense(1, name="score")(keras.ops.mean(items(ids), axis=1)))
    model.compile(keras.optimizers.Adam(0.05), "mse")


def train(first, last):
    """Train on this rank's share of each batch; return the mean of the ranks' losses."""
    losses = []
    for step in range(first, last):
        draw = np.random.default_rng(step)
        names = np.char.add("item ", np.minimum(draw.geometric(0.05, (BATCH, 4)), KINDS).astype(str))
        targets = draw.standard_normal((BATCH, 1)).astype(np.float32)
        mine = slice(rank * BATCH // size, (rank + 1) * BATCH // size)
        losses.append(float(model.train_on_batch(tf.constant(names[mine]), targets[mine])))
    return np.mean(strategy.communicator.allgather(losses), axis=0).tolist()


def known():
    """Return the ids of all ranks: hash, number of steps, last step, whether it has a row."""
    index = items.table.index.entries
    mine = [[int(number) for number in one] for one in zip(*index[:3], index.rows > 0, strict=True)]
    return sorted(one for part in strategy.communicator.allgather(mine) for one in part)


if TASK == "save":
    train(0, HALF)
    assert save_training(FOLDER / "checkpoint", model, strategy.communicator) == HALF
    print(json.dumps({"saved": known(), "losses": train(HALF, 2 * HALF), "known": known()}))
else:
    assert load_training(FOLDER / "checkpoint", model, strategy.communicator) == HALF
    result = {"saved": known(), "losses": train(HALF, 2 * HALF), "known": known()}
    strategy.export_saved_model(FOLDER / "served", model)
    asked = tf.constant([["item 1", "item 2", "never seen", "item 3"]])
    result["answer"] = model(asked, training=False).numpy().tolist()
    print(json.dumps(result))
