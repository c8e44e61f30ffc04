"""Step time and memory of a sequence model with a sampled softmax by the number of items, on two ranks.

    python -m tests.benchmarks.sequences_many_items [--items 20000 200000 2000000] [--ranks 2]

Prints one JSON line. The models of all sizes are in the same processes and take turns, so that the ratios of their
times do not depend on what else the machine does. Memory is what the process has after the steps of the largest model,
less what it had before the model was made.
"""

import argparse
import json
import sys
import time
from pathlib import Path

DIM, BATCH, LENGTH, STEPS = 64, 32, 20, 25


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, nargs="+", default=[20_000, 200_000, 2_000_000])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.worker:
        print(json.dumps(measure(a.items)))
        return
    from tests.distributed.launch import horovodrun

    words = ["--worker", "--items", *map(str, a.items)]
    run = horovodrun("module:tests.benchmarks.sequences_many_items", *words, engine="gloo", world=a.ranks, timeout=1800)
    found = [rank.result for rank in run.ranks]
    times = found[0]["step_ms"]
    whole = 3 * 4 * a.items[-1] * (DIM + 1) / 2**20  # values and Adam's two slots
    figures = {
        "figure": "sequences_many_items", "ranks": a.ranks, "items": a.items, "step_ms": times,
        "slowest_by_fastest": round(max(times) / min(times), 3), "aim": 1.15, "table_and_slots_mb": round(whole),
        "held_mb_per_rank": [one["held_mb"] for one in found],
        "process_grew_mb_per_rank": [one["grew_mb"] for one in found],
        "held_share_per_rank": [round(one["held_mb"] / whole, 3) for one in found],
    }  # fmt: skip
    print(json.dumps(figures))
    sys.exit(max(times) > 1.15 * min(times))


def measure(sizes: list[int]) -> dict:
    """Measure the median step of each size, and the memory of the largest."""
    import numpy as np

    from xmc_tf.collective.strategy import CollectiveStrategy
    from xmc_tf.params import SequenceParams
    from xmc_tf.sequences.model.recommender import Recommender
    from xmc_tf.sequences.training.training import make_optimizer, make_train_step

    draw, models, steps = np.random.default_rng(0), [], []
    strategy = CollectiveStrategy()

    def batch(items: int) -> tuple:
        rows = np.minimum(draw.zipf(1.2, (BATCH, LENGTH + 1)) - 1, items - 1).astype(np.int32)
        return rows[:, :-1], rows[:, 1:]

    before = 0.0
    for items in sizes:
        before = _resident()
        params = SequenceParams(
            model="sasrec", embed_dim=DIM, n_layers=1, max_len=LENGTH, sliding_step=LENGTH, loss="sampled",
            negatives=1024, dropout=0.0,
        )  # fmt: skip
        strategy.tables.clear()
        model = Recommender(strategy, params, items)
        optimizer = make_optimizer(model, 1000)
        optimizer.build(model.trained)
        models.append(model)
        steps.append(make_train_step(model, optimizer))
        for _ in range(2):
            steps[-1](*batch(items), np.array([1, 1], np.int64)).numpy()
    grew = _resident() - before
    seconds = np.zeros((STEPS, len(sizes)))
    for turn in range(STEPS):
        for at, items in enumerate(sizes):
            given = batch(items)
            strategy.communicator.barrier()
            start = time.perf_counter()
            steps[at](*given, np.array([1, turn], np.int64)).numpy()
            seconds[turn, at] = time.perf_counter() - start
    table = models[-1].table
    held = sum(4 * int(np.prod(one.shape)) for one in (table.variable, *table.slots.values()))
    return {
        "step_ms": [round(1000 * float(one), 1) for one in np.median(seconds, axis=0)],
        "held_mb": round(held / 2**20), "grew_mb": round(grew),
    }  # fmt: skip


def _resident() -> float:
    """Return the resident memory of this process in MiB."""
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) / 1024


if __name__ == "__main__":
    main()
