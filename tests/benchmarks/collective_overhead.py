"""The cost per step of a sharded embedding in one process, compared with a plain one of Keras.

    python -m tests.benchmarks.collective_overhead [--rows 100000] [--dim 64]

Prints one JSON line. The same model, data and optimizer, once with Keras' Embedding and once with the one that
embedding_scope() makes of it, through Keras' own train_on_batch; rounds of both in turn, so that what else the machine
does hits both. SGD is the fair comparison of the lookup; Keras' Adam goes over the whole table in every step, ours over
the rows that were touched.
"""

import argparse
import json
import time
from contextlib import nullcontext

import keras
import numpy as np
import tensorflow as tf

from xmc_tf import CollectiveStrategy

BATCH, IDS = 256, 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=25, help="in a round")
    a = parser.parse_args()
    draw = np.random.default_rng(0)
    batches = [
        (tf.constant(draw.integers(0, a.rows, (BATCH, IDS))), tf.constant(draw.standard_normal((BATCH, 1)), tf.float32))
        for _ in range(8)
    ]
    for name in ("SGD", "Adam"):
        models = [make(a.rows, a.dim, name, sharded) for sharded in (False, True)]
        for model in models:
            run(model, batches, 5)
        seconds = np.array([[run(model, batches, a.steps) for model in models] for _ in range(a.rounds)])
        plain, ours = np.median(seconds, axis=0) / a.steps
        print(
            json.dumps(
                {
                    "figure": "collective_overhead",
                    "optimizer": name,
                    "rows": a.rows,
                    "dim": a.dim,
                    "ids_per_step": BATCH * IDS,
                    "keras_ms": round(1000 * plain, 3),
                    "ours_ms": round(1000 * ours, 3),
                    "overhead_percent": round(100 * float(np.median(seconds[:, 1] / seconds[:, 0]) - 1), 1),
                    "aim": "under 5 %",
                    "tensorflow": tf.__version__,
                }
            ),
            flush=True,
        )


def make(rows: int, dim: int, optimizer: str, sharded: bool) -> keras.Model:
    """Return the model, with one embedding or the other."""
    strategy = CollectiveStrategy()
    with strategy.scope() if sharded else nullcontext():
        ids = keras.Input([IDS], dtype=tf.int64)
        with strategy.embedding_scope(shard_above=0) if sharded else nullcontext():
            items = keras.layers.Embedding(rows, dim)
        hidden = keras.layers.Dense(64, activation="relu")(tf.reduce_mean(items(ids), axis=1))
        model = keras.Model(ids, keras.layers.Dense(1)(hidden))
        model.compile(optimizer, "mse")
    return model


def run(model: keras.Model, batches: list[tuple[tf.Tensor, tf.Tensor]], steps: int) -> float:
    """Return the seconds that some steps take."""
    start = time.perf_counter()
    for number in range(steps):
        model.train_on_batch(*batches[number % len(batches)])
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
