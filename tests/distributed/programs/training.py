"""Train a model with a sharded table and one with a growing table of strings: ``training.py TASK FOLDER``.

``save``: six steps, checkpoints, an export, then six more, which is the uninterrupted run.
``resume``: loads the checkpoints, makes the last six steps, and exports the growing table.
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

from xmc_tf.collective.checkpoints.training_state import load_training, save_training, tables_of
from xmc_tf.collective.dynamic_tables.eviction import LeastFrequent
from xmc_tf.collective.dynamic_tables.keras_embedding import GrowingEmbedding
from xmc_tf.collective.saved_model import export_saved_model
from xmc_tf.collective.strategy import CollectiveStrategy

ROWS, DIM, BATCH, HALF, KINDS = 37, 6, 12, 6, 60
TASK, FOLDER = sys.argv[1], Path(sys.argv[2])

strategy = CollectiveStrategy(seed=5)
world, rank, size = strategy.communicator, strategy.rank(), strategy.world_size()
MINE = slice(rank * BATCH // size, (rank + 1) * BATCH // size)  # of a batch, which is the same for any number of ranks

with strategy.scope():
    ids = keras.Input([4], dtype="int64", name="ids")
    with strategy.embedding_scope(shard_above=0):
        items = keras.layers.Embedding(ROWS, DIM, name="items")
    kinds = keras.layers.Embedding(3, DIM, name="kinds")
    together = keras.ops.mean(items(ids), axis=1) + keras.ops.mean(kinds(ids % 3), axis=1)
    fixed = keras.Model(ids, keras.layers.Dense(1, name="score")(together))
    fixed.compile(keras.optimizers.Adam(0.05), "mse")
    names = keras.Input([4], dtype=tf.string, name="ids")
    with strategy.embedding_scope():
        words = GrowingEmbedding(DIM, name="words", admit_after=2, evict=LeastFrequent(max_rows=20, every=4))
    growing = keras.Model(names, keras.layers.Dense(1, name="score")(keras.ops.mean(words(names), axis=1)))
    growing.compile(keras.optimizers.Adam(0.05), "mse")
PLACES = {fixed: FOLDER / "checkpoint", growing: FOLDER / "growing"}


def train(model, first, last):
    """Train on this rank's share of each batch; return the mean of the ranks' losses."""
    losses = []
    for step in range(first, last):
        draw = np.random.default_rng(step)
        inputs, targets = draw.integers(0, ROWS, (BATCH, 4)), draw.standard_normal((BATCH, 1)).astype(np.float32)
        if model is growing:
            numbers = np.minimum(draw.geometric(0.05, (BATCH, 4)), KINDS)
            inputs = np.char.add("item ", numbers.astype(str))
        losses.append(float(model.train_on_batch(tf.constant(inputs[MINE]), targets[MINE])))
    return np.mean(world.allgather(losses), axis=0).tolist()


def state():
    """Return all trained variables of the model with a sharded table, with whole tables."""
    (table,) = tables_of(fixed)
    whole = {"values": table.variable, **table.slots}
    found = {name: world.allgather_array(variable.numpy()) for name, variable in whole.items()}
    found |= {f"dense {number}": one.numpy() for number, one in enumerate(fixed.layers[-1].variables)}
    found["iterations"] = fixed.optimizer.iterations.numpy()
    found["kinds"] = fixed.get_layer("kinds").embeddings.numpy()
    assert strategy.check_replicas(fixed.variables) == 3
    return {name: np.asarray(value).tolist() for name, value in found.items()}


def known():
    """Return the ids of all ranks: hash, number of steps, last step, whether it has a row."""
    index = words.table.index.entries
    mine = [[int(number) for number in one] for one in zip(*index[:3], index.rows > 0, strict=True)]
    return sorted(one for part in world.allgather(mine) for one in part)


result = {}
for model, place in PLACES.items():
    if TASK == "save":
        train(model, 0, HALF)
        assert save_training(place, model, world) == HALF
    else:
        assert load_training(place, model, world) == HALF
result["saved"] = known()
if TASK == "save":
    export_saved_model(FOLDER / "served", fixed, tables_of(fixed), world)
    # All ranks look up the same rows, because the lookup is collective.
    result["answers"] = fixed(np.arange(ROWS + 3).reshape(-1, 4) % ROWS, training=False).numpy().tolist()
train(fixed, HALF, 2 * HALF)
result |= {"losses": train(growing, HALF, 2 * HALF), "known": known(), "state": state()}
if TASK == "resume":
    strategy.export_saved_model(FOLDER / "served growing", growing)
    asked = tf.constant([["item 1", "item 2", "never seen", "item 3"]])
    result["answer"] = growing(asked, training=False).numpy().tolist()
print(json.dumps(result))
