"""The time per step of a growing table compared with a fixed one, and of its lookups with those of TensorFlow's tables.

    python -m benchmarks.growing_table [--ids 1000000] [--dim 64]

Prints one JSON line for the steps of a Keras model, and one for lookups alone. Both tables have the same rows; the
growing one also knows how often each id was seen. Rounds of both in turn, so that other load on the machine hits both.
"""

import argparse
import json
import time
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from xmc_tf import CollectiveStrategy
from xmc_tf.collective.dynamic_tables.eviction import LeastFrequent
from xmc_tf.collective.dynamic_tables.index import hash_ids
from xmc_tf.collective.dynamic_tables.keras_embedding import GrowingEmbedding
from xmc_tf.ranks.solo import Solo

BATCH, IDS = 256, 32
Batch = tuple[tf.Tensor, tf.Tensor]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ids", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=25, help="in a round")
    a = parser.parse_args()
    draw = np.random.default_rng(0)
    numbers = [draw.integers(0, a.ids, (BATCH, IDS)) for _ in range(16)]
    names = [np.char.add("item ", one.astype(str)) for one in numbers]
    targets = tf.constant(draw.standard_normal((BATCH, 1)), tf.float32)
    kinds: dict[str, tuple[keras.Model, list[Batch]]] = {
        "fixed": (make(a.ids, a.dim, None), [(tf.constant(one), targets) for one in numbers]),
        "growing": (make(a.ids, a.dim, tf.int64), [(tf.constant(one), targets) for one in numbers]),
        "growing_strings": (make(a.ids, a.dim, tf.string), [(tf.constant(one), targets) for one in names]),
    }
    insert = {kind: fill(model, a.ids) for kind, (model, _) in kinds.items() if kind != "fixed"}
    for model, batches in kinds.values():
        run(model, batches, 5)
    seconds = np.array([[run(model, batches, a.steps) for model, batches in kinds.values()] for _ in range(a.rounds)])
    ms = dict(zip(kinds, 1000 * np.median(seconds, axis=0) / a.steps, strict=True))
    report(
        "growing_table_steps",
        ids=a.ids,
        dim=a.dim,
        ids_per_step=BATCH * IDS,
        **{f"{kind}_ms": round(float(one), 3) for kind, one in ms.items()},
        ratio=ratio(seconds, 1),
        ratio_strings=ratio(seconds, 2),
        new_ids_per_second=round(a.ids / insert["growing"]),
        aim="at most 1.5 times a fixed table",
    )
    compare_lookups(a.ids, numbers, a.rounds)


def make(rows: int, dim: int, dtype: tf.DType | None) -> keras.Model:
    """Return a model with a fixed table, or with a growing one for ids of a type."""
    strategy = CollectiveStrategy(Solo())
    with strategy.scope(), strategy.embedding_scope(shard_above=0):
        ids = keras.Input([IDS], dtype=dtype or tf.int64)
        if dtype is None:
            items = keras.layers.Embedding(rows, dim)
        else:
            items = GrowingEmbedding(dim, evict=LeastFrequent(max_rows=2 * rows))
        hidden = keras.layers.Dense(64, activation="relu")(tf.reduce_mean(items(ids), axis=1))
        model = keras.Model(ids, keras.layers.Dense(1)(hidden))
        model.compile("adam", "mse")
        model.optimizer.build(model.trainable_variables)
    return model


def fill(model: keras.Model, ids: int) -> float:
    """Show all ids to a growing table; return the seconds it takes."""
    table, strings = model.layers[1].table, model.inputs[0].dtype == tf.string
    start = time.perf_counter()
    for low in range(0, ids, BATCH * IDS):
        some = tf.range(low, min(low + BATCH * IDS, ids), dtype=tf.int64)
        named = tf.strings.join(["item ", tf.strings.as_string(some)]) if strings else some
        table.rows_of(hash_ids(named), training=True)
    return time.perf_counter() - start


def run(model: keras.Model, batches: list[Batch], steps: int) -> float:
    """Return the seconds that some steps take."""
    start = time.perf_counter()
    for number in range(steps):
        model.train_on_batch(*batches[number % len(batches)])
    return time.perf_counter() - start


def ratio(seconds: np.ndarray, kind: int) -> float:
    """Return the median ratio to the first kind in the same round."""
    return round(float(np.median(seconds[:, kind] / seconds[:, 0])), 3)


def compare_lookups(ids: int, numbers: list[np.ndarray], rounds: int) -> None:
    """Compare the search of our index with TensorFlow's mutable hash tables."""
    everything = tf.range(ids, dtype=tf.int64)
    growing = CollectiveStrategy(Solo()).growing_table("items", 1)
    mutable = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1)
    dense = tf.lookup.experimental.DenseHashTable(
        tf.int64, tf.int64, -1, empty_key=-1, deleted_key=-2, initial_num_buckets=1 << 21
    )
    growing.rows_of(hash_ids(everything), training=True)
    for table in (mutable, dense):
        table.insert(everything, everything)
    searches: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
        "ours": lambda batch: growing.rows_of(hash_ids(batch), training=True),
        "mutable_hash_table": mutable.lookup,
        "dense_hash_table": dense.lookup,
    }
    traced = [tf.function(search, input_signature=[tf.TensorSpec([None], tf.int64)]) for search in searches.values()]
    batches = [tf.constant(one.ravel()) for one in numbers]

    def seconds(search: Callable[[tf.Tensor], tf.Tensor]) -> float:
        start = time.perf_counter()
        for batch in batches:
            search(batch)
        return (time.perf_counter() - start) / len(batches)

    for search in traced:
        seconds(search)
    times = 1000 * np.median([[seconds(search) for search in traced] for _ in range(rounds)], axis=0)
    named = {f"{name}_ms": round(float(one), 3) for name, one in zip(searches, times, strict=True)}
    report("growing_table_lookups", ids=ids, ids_per_step=BATCH * IDS, **named)


def report(figure: str, **values: object) -> None:
    """Print a figure."""
    print(json.dumps({"figure": figure, **values, "tensorflow": tf.__version__}), flush=True)


if __name__ == "__main__":
    main()
