"""A label head over all labels on two ranks of this machine: time and memory of a step, beside a tree's candidates.

    python -m benchmarks.flat_head [--labels 1000000] [--sides in-place candidates fp32]

Trains heads of 384 dimensions on the same random documents, 32 a rank with 5 labels each: ``in-place`` over all labels
in bfloat16 (``--head-precision bf16``), ``fp32`` over all labels with Adam, and ``candidates`` with Adam over 20
clusters of 100 labels a document, as a beam search through a tree finds them. No encoder is computed. Each side has
processes of its own. Prints one line of JSON a side: medians over steps, and how much each rank's memory has grown at
most, beside what the formula says: 2 bytes a weight and 4 a label in place, 12 bytes a weight with Adam's means, 16
with a dense gradient.
"""

import argparse
import json
import os
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np

DIM, DOCUMENTS, LABELS_EACH, CLUSTER, BEAM = 384, 32, 5, 100, 20
WORLD = 2
BYTES = {"in-place": 2, "candidates": 12, "fp32": 16}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, default=1_000_000)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--sides", nargs="+", choices=list(BYTES), default=["in-place", "candidates"])
    parser.add_argument("--rank-of", choices=list(BYTES), help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.rank_of:
        print(json.dumps(_measure(a.rank_of, a.labels, a.steps)), flush=True)
        return
    from tests.distributed.launch import mpiexec

    for side in a.sides:
        arguments = ["--rank-of", side, "--labels", str(a.labels), "--steps", str(a.steps)]
        run = mpiexec("module:benchmarks.flat_head", *arguments, world=WORLD, timeout=1800)
        results = [rank.result for rank in run.ranks]
        per_label = BYTES[side] * (DIM + 1) + (4 if side == "in-place" else 0)
        print(json.dumps({
            "figure": "flat_head", "side": side, "labels": a.labels, "dim": DIM, "ranks": WORLD,
            "documents_a_rank": DOCUMENTS, **results[0],
            "grown_mb": max(one["grown_mb"] for one in results),
            "formula_mb": round(a.labels / WORLD * per_label / 2**20), "load": round(os.getloadavg()[0], 1),
        }), flush=True)  # fmt: skip


def _measure(side: str, labels: int, steps: int) -> dict[str, Any]:
    import tensorflow as tf

    from xmc_tf import CollectiveStrategy

    tf.config.threading.set_intra_op_parallelism_threads(1)
    strategy = CollectiveStrategy()
    # TensorFlow's and XLA's own memory comes with the first step, so a small head takes one first.
    _step_of(side, strategy, 1000)()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    step = _step_of(side, strategy, labels)
    losses = [step() for _ in range(2)]
    clock, cpu = [], []
    for _ in range(steps):
        strategy.communicator.barrier()
        began, used = time.perf_counter(), time.process_time()
        losses.append(step())
        clock.append(time.perf_counter() - began)
        cpu.append(time.process_time() - used)
    if not losses[-1] < losses[0]:
        raise SystemExit(f"{side}: the loss did not fall: {losses}")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {
        "step_s": round(float(np.median(clock)), 3),
        "step_cpu_s": round(float(np.median(cpu)), 3),
        "grown_mb": round(grown / 2**10),
        "losses": [round(losses[0], 3), round(losses[-1], 3)],
    }


def _step_of(side: str, strategy: Any, labels: int) -> Callable[[], float]:
    """Return a function that trains a head of this size on this rank's documents, and returns their loss."""
    import keras
    import tensorflow as tf

    from xmc_tf.collective.optimizers.row_wise.adam import RowAdam
    from xmc_tf.collective.tables.every_row import InPlaceAdam, RowStep
    from xmc_tf.matcher.head import LabelHead, head_loss
    from xmc_tf.matcher.heads import Scaling

    in_place, loss_of = side == "in-place", head_loss("cross-entropy")
    head = LabelHead(strategy, f"{side}_{labels}", labels, DIM, scaling=Scaling(True, 20.0), in_place=in_place)
    draw = np.random.default_rng(strategy.rank())
    vectors = tf.constant(draw.normal(size=(DOCUMENTS, DIM)).astype(np.float32))
    positives = np.sort([draw.choice(labels, LABELS_EACH, replace=False) for _ in range(DOCUMENTS)])
    documents, rate = tf.constant(float(DOCUMENTS * WORLD)), 2.5e-4
    rows = head.table.variable
    optimizer = strategy.optimizer(keras.optimizers.Adam(rate), table_optimizer=RowAdam(rate), reduction="sum")
    trainer = InPlaceAdam(head.table) if in_place else None
    number = tf.Variable(0)
    candidates, targets = positives, np.ones(positives.shape, np.float32)
    if side == "candidates":
        candidates, targets = _candidates(draw, positives, labels)
    nodes = tf.RaggedTensor.from_tensor(tf.constant(candidates, tf.int64))
    hits = nodes.with_flat_values(tf.constant(targets.ravel()))

    @tf.function(autograph=False)
    def step() -> tf.Tensor:
        if trainer is not None:
            now = RowStep(number.assign_add(1), tf.constant(rate), 1.0 / documents)
            return tf.reduce_sum(head.losses_of_all(vectors, nodes, loss_of, in_place=(trainer, now))) / documents
        with tf.GradientTape() as tape:
            if side == "candidates":
                losses = head.losses(vectors, nodes, hits, loss_of)
            else:
                losses = head.losses_of_all(vectors, nodes, loss_of)
            loss = tf.reduce_sum(losses) / documents
        optimizer.apply_gradients([(tape.gradient(loss, rows), rows)])
        return loss

    if side == "candidates":
        head.choose_route(nodes)
    return lambda: float(step())


def _candidates(draw: np.random.Generator, positives: np.ndarray, labels: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the labels of the positives' clusters and of others, and which of them are positives."""
    chosen, hits = [], []
    for own in positives:
        clusters = set(own // CLUSTER)
        clusters |= set(draw.choice(max(labels // CLUSTER, BEAM), BEAM - len(clusters), replace=False))
        while len(clusters) < BEAM:
            clusters.add(int(draw.integers(max(labels // CLUSTER, BEAM))))
        found = (np.sort(list(clusters))[:, None] * CLUSTER + np.arange(CLUSTER)).ravel() % labels
        chosen.append(found)
        hits.append(np.isin(found, own).astype(np.float32))
    return np.array(chosen), np.array(hits)


if __name__ == "__main__":
    main()
