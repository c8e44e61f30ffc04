"""A sharded table on two ranks of this machine: time, memory and bytes of a step, by the number of rows.

    python -m benchmarks.collective_steps [--engine gloo] [--rows 10000 100000 1000000] [--no-replicas]

Prints one JSON line for each number of rows: a table of that many rows of 384, trained with Adam on 256 instances of 64
ids per worker, once sharded and once replicated with the gradient all-reduced, as data-parallel training does it. Times
are medians over steps. Memory is what the process has grown by; bytes are counted in the graph and compared with a
formula: each different row that the other worker owns costs its number, its values, and their gradient.
"""

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

DIM, INSTANCES, IDS = 384, 256, 64
WORLD = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--engine", choices=["mpi", "gloo", "horovod-mpi"], default="mpi", help="mpi4py, or Horovod")
    parser.add_argument("--no-replicas", action="store_true", help="leave out the replicated side, which is slow")
    parser.add_argument("--worker", choices=["sharded", "replicated"], help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.worker:
        work(a.worker, a.rows, a.steps)
        return
    from tests.distributed.launch import horovodrun, mpiexec

    launch = horovodrun if a.engine == "gloo" else mpiexec
    environment = {"XMC_TF_COMMUNICATOR": "horovod"} if a.engine == "horovod-mpi" else {}
    target, found = "module:benchmarks.collective_steps", {}
    for side in ("sharded", "replicated")[: 1 if a.no_replicas else 2]:
        # Adam on a replicated table of a million rows moves gigabytes a step; a few steps say enough.
        steps = a.steps if side == "sharded" else max(3, a.steps // 5)
        arguments = ["--worker", side, "--steps", str(steps), "--rows", *map(str, a.rows)]
        found[side] = launch(target, *arguments, world=WORLD, timeout=1800, env=environment).ranks[0].result
    for number, rows in enumerate(a.rows):
        sharded, replicated = found["sharded"][number], found.get("replicated", [{}] * len(a.rows))[number]
        figures = {
            "figure": "collective_steps",
            "engine": a.engine,
            "rows": rows,
            "dim": DIM,
            "workers": WORLD,
            "ids_per_worker": INSTANCES * IDS,
            **sharded,
            "replicated_step_ms": replicated.get("step_ms"),
            "replicated_grown_mb": replicated.get("grown_mb"),
            "aim": "flat within 10 %; memory 1/N within 5 %, bytes by the formula within 10 %",
        }
        print(json.dumps(figures), flush=True)


def work(side: str, sizes: Sequence[int], steps: int) -> None:
    """Run one rank of one side: all sizes in turn, so that other load on the machine affects all of them."""
    import tensorflow as tf

    from xmc_tf import CollectiveStrategy

    tf.config.threading.set_intra_op_parallelism_threads(max(1, (os.cpu_count() or 1) // WORLD))
    strategy = CollectiveStrategy()
    # Replicas of a million rows are large: one after another, and nothing is kept.
    together = [sizes] if side == "sharded" else [[rows] for rows in sizes]
    results = []
    for group in together:
        cases = [Case(strategy, side == "sharded", rows) for rows in group]
        for number in range(steps):
            for case in cases:
                case.timed_step(number)
        results += [case.result() for case in cases]
        del cases, case
        gc.collect()
    for result in results:
        result["against_fewest_rows"] = round(result["step_ms"] / results[0]["step_ms"], 3)
    print(json.dumps(results), flush=True)


class Case:
    """Create a table of one size and run steps on it."""

    def __init__(self, strategy: Any, sharded: bool, rows: int) -> None:
        import keras
        import tensorflow as tf

        self.strategy, self.rows, self.table = strategy, rows, None
        draw = np.random.default_rng(strategy.rank())
        # The same number of different rows whatever the size of the table: what grows is the table alone.
        pool = np.random.default_rng(9).choice(rows, 8_000, replace=False)
        self.batches = [tf.constant(draw.choice(pool, (INSTANCES, IDS))) for _ in range(8)]
        optimizer = strategy.optimizer(keras.optimizers.Adam(0.001))
        before = _resident()
        if sharded:
            self.table = strategy.table(f"items_{rows}", rows, DIM)
            variable = self.table.variable
        else:
            variable = tf.Variable(tf.random.stateless_uniform([rows, DIM], [1, 2], -0.05, 0.05))
        target = self.table if sharded else variable

        @tf.function(reduce_retracing=True)
        def step(ids: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                rows_of_ids = strategy.lookup(target, ids) if sharded else tf.gather(target, ids)
                loss = tf.reduce_mean(tf.square(tf.reduce_sum(rows_of_ids, axis=1) - 1.0))
            optimizer.apply_gradients([(tape.gradient(loss, variable), variable)])
            return loss

        self.step = step
        for ids in self.batches[:3]:
            step(ids)
        gc.collect()
        self.grown = _resident() - before
        self.seconds: list[float] = []
        self.sent = self.asked = 0

    def timed_step(self, number: int) -> None:
        """Run one step that all ranks begin at the same time."""
        from xmc_tf.collective.meters.traffic import bytes_sent

        ids, before = self.batches[number % len(self.batches)], sum(bytes_sent().values())
        self.strategy.communicator.barrier()
        start = time.perf_counter()
        self.step(ids).numpy()
        self.seconds.append(time.perf_counter() - start)
        self.sent += sum(bytes_sent().values()) - before
        if self.table is not None:
            low, high = (int(bound) for bound in self.table.partition.bounds[self.table.rank : self.table.rank + 2])
            unique = np.unique(ids.numpy())
            self.asked += int(((unique < low) | (unique >= high)).sum())

    def result(self) -> dict[str, Any]:
        """Return the figures of this size."""
        figures: dict[str, Any] = {
            "step_ms": round(1000 * float(np.median(self.seconds)), 2),
            "grown_mb": round(self.grown / 2**20),
        }
        if self.table is not None:
            steps, kept = len(self.seconds), [self.table.variable, *self.table.slots.values()]
            # What one worker asks for the other sends, so that both count on the average.
            sent, asked = np.mean(self.strategy.communicator.allgather((self.sent, self.asked)), axis=0)
            figures |= {
                "kept_mb": round(sum(int(np.prod(one.shape)) for one in kept) * 4 / 2**20, 1),
                "share_mb": round(3 * self.rows * DIM * 4 / 2**20 / WORLD, 1),  # values, m and v
                "sent_mb": round(sent / steps / 2**20, 3),
                "formula_mb": round(asked * (4 + 2 * DIM * 4) / steps / 2**20, 3),
            }
        return figures


def _resident() -> int:
    import psutil

    return psutil.Process().memory_info().rss


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    main()
