"""A recommender that xmc_tf and TorchRec train alike: the same data, initial values and turns. Needs NumPy only.

The vectors of a user's last items are added and pass a dense layer with ReLU; the product with an item's vector scores
the item. Both features use the same table.
"""

import json
import os
import resource
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path

import numpy as np

DIM, BATCH, HISTORY, WORLD, RATE, TABLE = 64, 256, 20, 2, 0.05, "products"


def initial_rows(rows: np.ndarray) -> np.ndarray:
    """Return the initial values of some rows of the table."""
    cells = rows.astype(np.uint64)[:, None] * np.uint64(DIM) + np.arange(DIM, dtype=np.uint64)
    mixed = (cells * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)
    return (mixed.astype(np.float32) / np.float32(2**24) - np.float32(0.5)) * np.float32(0.1)


def dense_kernel() -> np.ndarray:
    """Return the initial values of the dense layer, ``[DIM, DIM]``: inputs by outputs."""
    return np.random.default_rng(7).normal(0.0, 0.1, (DIM, DIM)).astype(np.float32)


def batches(rows: int, rank: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield a rank's histories ``[BATCH, HISTORY]``, items ``[BATCH, 1]`` and clicks ``[BATCH]``, endlessly.

    Some items are frequent, and these are anywhere in the table, so that all ranks have equally many.
    """
    draw = np.random.default_rng(rank)
    popular = np.floor(rows ** draw.random((16, BATCH, HISTORY + 1))).astype(np.int64)
    ids = popular * 1_000_003 % rows
    clicks = draw.integers(0, 2, (16, BATCH)).astype(np.float32)
    yield from cycle([(some[:, :HISTORY], some[:, HISTORY:], one) for some, one in zip(ids, clicks, strict=True)])


def take_turns(folder: Path, side: str, rank: int, steps: int, step: Callable[[], float]) -> None:
    """Run steps whenever the benchmark allows this side to, and report losses, times and memory each time."""
    turn = 0
    while True:
        while not (folder / f"go-{side}-{turn}").exists():
            if (folder / "end").exists():
                return
            time.sleep(0.02)
        clock, cpu = time.perf_counter(), time.process_time()
        losses = [step() for _ in range(steps)]
        report = {
            "losses": losses,
            "seconds": time.perf_counter() - clock,
            "cpu_seconds": time.process_time() - cpu,
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "private_mb": _private_mb(),
        }
        path = folder / f"done-{side}-{turn}-{rank}"
        path.with_suffix(".part").write_text(json.dumps(report))
        os.rename(path.with_suffix(".part"), path)
        turn += 1


def _private_mb() -> float:
    """Return this process's memory without the pages of libraries that other processes share."""
    lines = (line.split() for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    return sum(int(line[1]) for line in lines if line[0].startswith("Private_")) / 1024
