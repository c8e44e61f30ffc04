"""Predict clicks with a DLRM: embeddings of many categories, dense features, and the dot products between them.

    python examples/dlrm.py [--rows 10 100 10000 10000000] [--steps 300]
    horovodrun -np 2 -H localhost:2 python examples/dlrm.py

The tables have 10 to 10,000,000 rows. A planner places them over the ranks, and all of them share each exchange. The
next batch is exchanged while a step computes. The script generates clicks from hidden tastes: each row of each table
has two hidden numbers, and the product of those of two rows makes a click more or less likely. So the loss falls only
if the embeddings learn these numbers; guessing has a loss of about 0.69.
"""

import argparse

import keras
import numpy as np
import tensorflow as tf

from xmc_tf import CollectiveStrategy, EmbeddingTable

DENSE, DIM, BATCH = 4, 16, 256


def hidden(table: int, ids: np.ndarray) -> np.ndarray:
    """Return two hidden numbers of each row, 1 or -1, computed from the row's number."""
    mixed = (ids.astype(np.uint64) + np.uint64(1 + table)) * np.uint64(0x9E3779B97F4A7C15)
    return np.stack([(mixed >> np.uint64(40)) & np.uint64(1), (mixed >> np.uint64(50)) & np.uint64(1)], -1) * 2.0 - 1.0


def clicks(rows: list[int], steps: int, rank: int) -> tf.data.Dataset:
    """Return a rank's batches: popular ids are frequent, as in logs of clicks."""
    draw = np.random.default_rng([2021, rank])
    count = steps * BATCH
    # Half of the examples have one of the 30 most popular ids of a table.
    ids = [
        np.where(draw.random(count) < 0.5, draw.integers(0, min(30, n), count), draw.integers(0, n, count))
        for n in rows
    ]
    dense = draw.standard_normal((count, DENSE)).astype(np.float32)
    tastes = np.stack([hidden(table, of_table) for table, of_table in enumerate(ids)], axis=1)
    total = tastes.sum(axis=1)
    # The sum of the products of all pairs of tables.
    agreement = ((total**2).sum(axis=1) - (tastes**2).sum(axis=(1, 2))) / 2
    clicked = draw.random(count) < 1 / (1 + np.exp(-agreement - dense[:, 0]))
    inputs = {"numbers": dense, **{f"category_{table}": of_table for table, of_table in enumerate(ids)}}
    return tf.data.Dataset.from_tensor_slices((inputs, clicked.astype(np.float32))).batch(BATCH)


def make_model(strategy: CollectiveStrategy, rows: list[int]) -> keras.Model:
    """Return a compiled DLRM: dot products between all embeddings and the encoded dense features."""
    start = keras.initializers.RandomNormal(stddev=0.1, seed=2021)
    tables = [EmbeddingTable(f"category_{number}", count, DIM, initializer=start) for number, count in enumerate(rows)]
    with strategy.scope():
        layer = strategy.embeddings(tables, batch_size=BATCH)
        if strategy.rank() == 0:
            print(layer.plan.text(), flush=True)
        dense = keras.Input([DENSE], name="numbers")
        categories = {table.name: keras.Input([], dtype=tf.int64, name=table.name) for table in tables}
        encoded = keras.layers.Dense(DIM)(keras.layers.Dense(32, "relu")(dense))
        vectors = keras.ops.stack([encoded, *layer(categories).values()], axis=1)
        dots = keras.ops.matmul(vectors, keras.ops.transpose(vectors, [0, 2, 1]))
        pairs = keras.ops.reshape(dots, [-1, (1 + len(rows)) ** 2])
        hidden_layer = keras.layers.Dense(32, "relu")(keras.ops.concatenate([encoded, pairs], axis=1))
        model = keras.Model({"numbers": dense, **categories}, keras.layers.Dense(1)(hidden_layer))
        model.compile(keras.optimizers.Adam(0.01), keras.losses.BinaryCrossentropy(from_logits=True))
    return model


def main() -> None:
    """Train, and print the loss of each tenth of the steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[10, 100, 10_000, 10_000_000], help="of each table")
    parser.add_argument("--steps", type=int, default=300, help="number of steps (default: 300)")
    parser.add_argument("--folder", help="folder of the exported model (default: no export)")
    options = parser.parse_args()
    strategy = CollectiveStrategy()
    model = make_model(strategy, options.rows)
    data = clicks(options.rows, options.steps, strategy.rank())
    each = max(1, options.steps // 10)
    losses: list[float] = []

    def after(step: int, logs: dict[str, float]) -> None:
        losses.append(logs["loss"] * (step + 1))  # Keras reports the mean since the first step
        if (step + 1) % each == 0 and strategy.rank() == 0:
            recent = (losses[-1] - (losses[-1 - each] if step >= each else 0.0)) / each
            print(f"step {step + 1}/{options.steps}, loss {recent:.4f}", flush=True)

    model.fit(data, callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=after)], verbose=0)
    if options.folder:
        strategy.export_saved_model(options.folder, model)


if __name__ == "__main__":
    main()
