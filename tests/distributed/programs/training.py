"""Train a small model with a sharded table, from a checkpoint or from the start: ``training.py TASK FOLDER``.

``save``: six steps, a checkpoint, an export, then six more, which is the unbroken run.
``resume``: takes the checkpoint up and makes the last six steps.
"""

import json
import os
import sys
from pathlib import Path

if "OMPI_COMM_WORLD_RANK" in os.environ:
    from mpi4py import MPI  # noqa: F401  first, so that it initialises MPI with the thread level it needs

import keras
import numpy as np

from xmc_tf.collective.checkpoints.training_state import load_training, save_training, tables_of
from xmc_tf.collective.saved_model import export_saved_model
from xmc_tf.collective.strategy import CollectiveStrategy

ROWS, DIM, BATCH, HALF = 37, 6, 12, 6
TASK, FOLDER = sys.argv[1], Path(sys.argv[2])

strategy = CollectiveStrategy(seed=5)
rank, size = strategy.rank(), strategy.world_size()


def make_model():
    with strategy.scope():
        ids = keras.Input([4], dtype="int64", name="ids")
        with strategy.embedding_scope(shard_above=0):
            items = keras.layers.Embedding(ROWS, DIM, name="items")
        kinds = keras.layers.Embedding(3, DIM, name="kinds")
        together = keras.ops.mean(items(ids), axis=1) + keras.ops.mean(kinds(ids % 3), axis=1)
        model = keras.Model(ids, keras.layers.Dense(1, name="score")(together))
        model.compile(keras.optimizers.Adam(0.05), "mse")
    return model


def batch(step):
    """Return this rank's share of the step's batch, which is the same for any number of ranks."""
    draw = np.random.default_rng(step)
    ids, targets = draw.integers(0, ROWS, (BATCH, 4)), draw.standard_normal((BATCH, 1)).astype(np.float32)
    mine = slice(rank * BATCH // size, (rank + 1) * BATCH // size)
    return ids[mine], targets[mine]


def train(model, first, last):
    for step in range(first, last):
        model.train_on_batch(*batch(step))


def state(model):
    """Return all trained variables, with whole tables."""
    world = strategy.communicator
    (table,) = tables_of(model)
    whole = {"values": table.variable, **table.slots}
    found = {name: world.allgather_array(variable.numpy()) for name, variable in whole.items()}
    found |= {f"dense {number}": one.numpy() for number, one in enumerate(model.layers[-1].variables)}
    found["iterations"] = model.optimizer.iterations.numpy()
    found["kinds"] = model.get_layer("kinds").embeddings.numpy()
    assert strategy.check_replicas(model.variables) == 3
    return {name: np.asarray(value).tolist() for name, value in found.items()}


model = make_model()
result = {}
if TASK == "save":
    train(model, 0, HALF)
    assert save_training(FOLDER / "checkpoint", model, strategy.communicator) == HALF
    export_saved_model(FOLDER / "served", model, tables_of(model), strategy.communicator)
    # All ranks look up the same rows, because the lookup is collective.
    ids = np.arange(ROWS + 3).reshape(-1, 4) % ROWS
    result["answers"] = model(ids, training=False).numpy().tolist()
    train(model, HALF, 2 * HALF)
    result["state"] = state(model)
else:
    assert load_training(FOLDER / "checkpoint", model, strategy.communicator) == HALF
    train(model, HALF, 2 * HALF)
    result["state"] = state(model)
print(json.dumps(result))
