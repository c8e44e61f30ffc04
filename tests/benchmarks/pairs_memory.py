"""Memory and time of a step of the label head's scoring for a shortlist of candidates, compared with the plain way.

    python -m tests.benchmarks.pairs_memory [--labels 5000 300000]

Prints one JSON line for each number of labels and route: 256 instances with 500 candidates each, of width 768, hinge
loss, gradients of vectors and table, in one process. The plain way gathers a vector and a row for every pair. Times are
the best of a few steps; memory is what the first step adds to the process's peak.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

INSTANCES, CANDIDATES, DIM = 256, 500, 768


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, nargs="+", default=[5_000, 300_000])
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--worker", choices=["plain", "rows", "features"], help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.worker:
        print(json.dumps(measure(a.worker, a.labels[0], a.steps)))
        return
    for labels in a.labels:
        found = {}
        for side in ("plain", "rows", "features"):
            command = [sys.executable, "-m", "tests.benchmarks.pairs_memory", "--labels", str(labels)]
            command += ["--steps", str(a.steps), "--worker", side]
            # A process each: a peak cannot be taken back.
            root = Path(__file__).resolve().parents[2]
            found[side] = json.loads(subprocess.run(command, cwd=root, stdout=subprocess.PIPE, check=True).stdout)
        for route in ("rows", "features"):
            figures = {"figure": "pairs_memory", "labels": labels, "route": route, **found[route]}
            figures |= {"plain_" + name: value for name, value in found["plain"].items()}
            print(json.dumps({**figures, "aim": "no slower, and no row for every pair in memory"}), flush=True)


def measure(side: str, labels: int, steps: int) -> dict[str, float]:
    """Measure the peak of memory that a step of one side adds, and its time."""
    import numpy as np
    import tensorflow as tf

    from xmc_tf.collective.tables.pairs import PairScorer
    from xmc_tf.collective.tables.table import make_table

    draw = np.random.default_rng(0)
    table = make_table("labels", labels, DIM)
    vectors = tf.constant(draw.standard_normal((INSTANCES, DIM)), tf.float32)
    ids = tf.constant(draw.integers(0, labels, (INSTANCES, CANDIDATES)))
    targets = tf.constant(draw.choice([-1.0, 1.0], ids.shape), tf.float32)

    def hinge(scores: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
        return tf.square(tf.nn.relu(1.0 - scores * wanted))

    def losses(vectors: tf.Tensor, ids: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        if side != "plain":
            return PairScorer(table, side).losses(vectors, ids, targets, hinge)  # type: ignore[arg-type]
        rows = tf.gather(table.variable, tf.reshape(ids, [-1]))
        spread = tf.repeat(vectors, tf.shape(ids)[1], axis=0)
        return hinge(tf.reshape(tf.reduce_sum(rows * spread, axis=1), tf.shape(ids)), targets)

    @tf.function(reduce_retracing=True)
    def step(vectors: tf.Tensor, ids: tf.Tensor, targets: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(vectors)
            loss = tf.reduce_sum(losses(vectors, ids, targets))
        of_vectors, of_table = tape.gradient(loss, [vectors, table.variable])
        # What every optimizer does first with them: rows that came twice are added up.
        unique, at = tf.unique(of_table.indices)
        return of_vectors, tf.math.unsorted_segment_sum(of_table.values, at, tf.size(unique))

    for few in (2, 4):
        step(vectors[:few], ids[:few], targets[:few])
    before, seconds = _peak(), []
    step(vectors, ids, targets)
    grown = _peak() - before
    for _ in range(steps):
        start = time.perf_counter()
        step(vectors, ids, targets)[1].numpy()
        seconds.append(time.perf_counter() - start)
    return {"step_ms": round(1000 * min(seconds), 1), "peak_mb": round(grown)}


def _peak() -> float:
    """Return the peak of the resident memory of this process in MiB, without that of its parent (``ru_maxrss``)."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


if __name__ == "__main__":
    main()
