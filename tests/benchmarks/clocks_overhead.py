"""The overhead per step of measuring the time in communication and of watching for stalls.

    python -m tests.benchmarks.clocks_overhead [--rows 100000] [--dim 64] [--ids 4096] [--rounds 12]

Two workers train a sharded table and a replicated layer, with clipping: half a dozen collectives a step. The step is
traced twice, with clocks and counters and without, and rounds of both are run in turn, so that what else the machine
does hits both. Prints one JSON line.
"""

import argparse
import json
import time
from collections.abc import Callable

import numpy as np

WORLD = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--ids", type=int, default=4096, help="of a worker in a step")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=25, help="in a round")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.worker:
        work(a.rows, a.dim, a.ids, a.rounds, a.steps)
        return
    from tests.distributed.launch import horovodrun

    flags = [f"--{name}={getattr(a, name)}" for name in ("rows", "dim", "ids", "rounds", "steps")]
    run = horovodrun(
        "module:tests.benchmarks.clocks_overhead", "--worker", *flags, engine="gloo", world=WORLD, timeout=1800
    )
    print(json.dumps({"figure": "clocks_overhead", "workers": WORLD, **run.ranks[0].result}), flush=True)


def work(rows: int, dim: int, ids: int, rounds: int, steps: int) -> None:
    """Run one rank."""
    import tensorflow as tf
    import tf_keras

    from xmc_tf import CollectiveStrategy
    from xmc_tf.collective.meters import time_spent
    from xmc_tf.ranks.stalls.marks import MARKS

    strategy = CollectiveStrategy()
    table = strategy.table("items", rows, dim)
    with strategy.scope():
        kernel = tf.Variable(tf.ones([dim, 1]))
    variables = [table.variable, kernel]
    optimizer = strategy.optimizer(tf_keras.optimizers.Adam(1e-3, global_clipnorm=1.0))
    draw = np.random.default_rng(strategy.rank())
    batches = [tf.constant(draw.integers(0, rows, ids)) for _ in range(8)]

    def traced(kept: bool) -> Callable[[tf.Tensor], tf.Tensor]:
        time_spent.ENABLED = MARKS.kept = kept

        @tf.function(autograph=False)
        def step(some: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(strategy.lookup(table, some) @ kernel))
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            return loss

        for batch in batches:
            step(batch)
        return step

    ways = {"with": traced(True), "without": traced(False)}
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    spent = time_spent.seconds_in_collectives()
    for _ in range(rounds):
        for way, step in ways.items():
            strategy.communicator.barrier()
            begun = time.perf_counter()
            for number in range(steps):
                step(batches[number % len(batches)])
            seconds[way].append(time.perf_counter() - begun)
    spent = time_spent.seconds_in_collectives() - spent
    with_, without = (np.array(seconds[way]) / steps for way in ("with", "without"))
    print(
        json.dumps(
            {
                "with_ms": round(1000 * float(np.median(with_)), 3),
                "without_ms": round(1000 * float(np.median(without)), 3),
                "overhead_percent": round(100 * float(np.median(with_ / without) - 1), 1),
                "of_which_in_communication_ms": round(1000 * spent / rounds / steps, 3),
                "tensorflow": tf.__version__,
            }
        ),
        flush=True,
    )


if __name__ == "__main__":
    main()
