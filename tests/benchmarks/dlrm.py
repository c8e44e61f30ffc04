"""A step of a DLRM with many tables on two ranks, with and without joint exchanges.

    python -m tests.benchmarks.dlrm [--tables 26] [--batch 1024] [--engine mpi]

Prints one JSON line. The same model and data, in one run: one exchange for each table, and one for all tables. Rounds
of both sides in turn, so that other load on the machine affects both; times are medians over rounds, and ratios are
medians of the ratios of a round. The losses of both sides must be equal. ``--placements`` measures the placements
instead.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

DIM, DENSE, WORLD = 16, 13, 2
# Name, whether exchanges are joint, and the placement.
SIDES = [("one_by_one", False, "rows"), ("joint", True, "rows")]
PLACEMENTS = [(f"joint_{place or 'planned'}", True, place) for place in ("rows", None, "replicated")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=26)
    parser.add_argument("--batch", type=int, default=1024, help="of each rank")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=10, help="in a round")
    parser.add_argument("--engine", choices=["gloo", "mpi"], default="gloo")
    parser.add_argument("--placements", action="store_true", help="compare placements")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.rank:
        work(a)
        return
    from tests.distributed.launch import horovodrun

    numbers = [f"--{name}={getattr(a, name)}" for name in ("tables", "batch", "rounds", "steps")]
    flags = ["--rank", *(["--placements"] if a.placements else []), *numbers]
    run = horovodrun("module:tests.benchmarks.dlrm", *flags, engine=a.engine, world=WORLD, timeout=1800)
    print(json.dumps({"figure": "dlrm", "ranks": WORLD, "engine": a.engine, **run.ranks[0].result}), flush=True)


def work(a: argparse.Namespace) -> None:
    """Run one rank."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(max(1, (os.cpu_count() or 1) // WORLD))
    # From 10 rows to a million, as in logs of clicks.
    rows = [int(10 ** (1 + 5 * number / max(1, a.tables - 1))) for number in range(a.tables)]
    sides = [Side(rows, a.batch, *side) for side in (PLACEMENTS if a.placements else SIDES)]
    for side in sides:
        side.run(3)
    seconds = np.array([[side.run(a.steps) for side in sides] for _ in range(a.rounds)]) / a.steps
    for side in sides:
        np.testing.assert_allclose(side.losses, sides[0].losses, rtol=1e-4)
    against_first = np.median(seconds / seconds[:, :1], axis=0)
    against_second = np.median(seconds / seconds[:, 1:2], axis=0)
    figures = {
        side.name: {
            "step_ms": round(1000 * float(np.median(seconds[:, number])), 1),
            f"of_{sides[0].name}": round(float(against_first[number]), 2),
            f"of_{sides[1].name}": round(float(against_second[number]), 2),
            "sent_kb_per_step": round(side.sent / 1000 / (a.steps * a.rounds + 3)),
        }
        for number, side in enumerate(sides)
    }
    losses = [round(sides[0].losses[0], 4), round(sides[0].losses[-1], 4)]
    print(
        json.dumps({"tables": a.tables, "rows": sum(rows), "batch": a.batch, **figures, "losses": losses}), flush=True
    )


class Side:
    """A model and its steps."""

    def __init__(self, rows: list[int], batch: int, name: str, joint: bool, placement: Any) -> None:
        import keras
        import tensorflow as tf

        from xmc_tf import CollectiveStrategy, EmbeddingTable

        self.name, self.losses, self.sent = name, [], 0
        strategy = CollectiveStrategy(seed=1)
        keras.utils.set_random_seed(7)
        tables = [EmbeddingTable(f"c{number}", count, DIM, placement=placement) for number, count in enumerate(rows)]
        with strategy.scope():
            layer = strategy.embeddings(tables, batch_size=batch, slots=1, joint=joint, name=f"{name}_tables")
            inputs = {table.name: keras.Input([], dtype=tf.int64) for table in tables}
            dense = keras.Input([DENSE])
            bottom = keras.layers.Dense(DIM, "relu")(keras.layers.Dense(128, "relu")(dense))
            vectors = keras.ops.stack([bottom, *layer(inputs).values()], axis=1)
            products = keras.ops.matmul(vectors, keras.ops.transpose(vectors, [0, 2, 1]))
            dots = keras.ops.reshape(products, [-1, (1 + len(rows)) ** 2])
            top = keras.layers.Dense(128, "relu")(keras.ops.concatenate([bottom, dots], axis=1))
            model = keras.Model({"dense": dense, **inputs}, keras.layers.Dense(1)(top))
            model.compile(keras.optimizers.Adagrad(0.02), keras.losses.BinaryCrossentropy(from_logits=True))
        data = tf.data.Dataset.from_tensor_slices(_examples(rows, batch, strategy.rank())).batch(batch)
        data = data.cache().repeat()
        self._data: Iterator[Any] = iter(data.prefetch(2))
        self._step = tf.function(model.train_step, autograph=False)
        self._model, self._barrier = model, strategy.communicator.barrier

    def run(self, steps: int) -> float:
        """Run steps, and return the seconds they take."""
        from xmc_tf.collective.meters.traffic import bytes_sent

        before = sum(bytes_sent().values())
        self._barrier()
        begun = time.perf_counter()
        for _ in range(steps):
            self._model.reset_metrics()
            loss = self._step(next(self._data))["loss"]
        self.losses.append(float(loss))
        took = time.perf_counter() - begun
        self.sent += sum(bytes_sent().values()) - before
        return took


def _examples(rows: list[int], batch: int, rank: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return examples whose ids are frequent if they are small, as in logs of clicks."""
    draw, count = np.random.default_rng(rank), 16 * batch
    ids = {f"c{number}": np.floor(size ** draw.random(count)).astype(np.int64) - 1 for number, size in enumerate(rows)}
    return {"dense": draw.standard_normal((count, DENSE)).astype(np.float32), **ids}, draw.integers(0, 2, count)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    main()
