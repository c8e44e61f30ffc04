"""The memory of an export, compared with the size of the model and of its largest matrix.

    python -m tests.benchmarks.serving_export_memory [--mb 1000] [--levels 4] [--weights fp32]

Makes rankers of so many megabytes up: levels of equal size, random weights, written to a temporary folder (which takes
as much again for the export). Exports them as a model is exported that was loaded from its folder.
Prints one JSON line:

model_mb           the model's matrices on disk
largest_mb         the largest of them
grown_mb           by how much more memory the export held at its peak than before it, without mapped files
over_largest       grown_mb over largest_mb: stays the same when levels are added
over_model         grown_mb over model_mb: falls as levels are added
"""

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from scipy.sparse import csc_matrix

from xmc_tf.params import LinearLevelPredParams
from xmc_tf.rankers.level import Level
from xmc_tf.rankers.xlinear import XLinear

_FEATURES, _BYTES_A_WEIGHT = 200_000, 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=1000, help="size of the matrices (default 1000)")
    parser.add_argument("--levels", type=int, default=4, help="levels that share it equally (default 4)")
    parser.add_argument("--weights", default="fp32", help="fp32 (default), fp16 or int8")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="xmc-tf-export-") as work:
        _make_up(Path(work) / "model", a.mb, a.levels)
        from xmc_tf.serving.export import ModelParts, export_model

        # What is compiled and loaded once does not count.
        _make_up(Path(work) / "small", 1, a.levels)
        small = ModelParts(XLinear.load(Path(work) / "small"), None, None)
        export_model(small, Path(work) / "served" / "1", precision=a.weights)
        sizes = [path.stat().st_size for path in (Path(work) / "model").glob("**/W.npz")]
        model = XLinear.load(Path(work) / "model")
        peak = _Peak()
        began = time.monotonic()
        export_model(ModelParts(model, None, None), Path(work) / "served" / "2", precision=a.weights)
        grown = peak.stop()
    figure = {
        "figure": "serving_export_memory",
        "weights": a.weights,
        "levels": a.levels,
        "model_mb": round(sum(sizes) / 1e6, 1),
        "largest_mb": round(max(sizes) / 1e6, 1),
        "grown_mb": round(grown / 1e6, 1),
        "over_largest": round(grown / max(sizes), 2),
        "over_model": round(grown / sum(sizes), 2),
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps(figure))


def _make_up(folder: Path, mb: int, nr_levels: int) -> None:
    """Return rankers with the same number of weights per level."""
    draw = np.random.default_rng(0)
    each = mb * 1_000_000 // nr_levels // _BYTES_A_WEIGHT
    levels, above = [], 1
    for number in range(nr_levels):
        nodes = 1024 * 4**number
        of_node = max(each // nodes, 1)
        # A node has a feature in each of so many ranges: one of two that its family has there.
        family = draw.integers(0, _FEATURES // of_node, (above, of_node, 2), np.int32)
        parent = np.arange(nodes) * above // nodes
        rows = np.empty((nodes, of_node), np.int32)
        for node in range(nodes):
            rows[node] = family[parent[node], np.arange(of_node), draw.integers(0, 2, of_node)]
        rows += np.arange(of_node, dtype=np.int32) * (_FEATURES // of_node)
        weights = csc_matrix(
            (draw.random(nodes * of_node, np.float32), rows.ravel(), np.arange(0, nodes * of_node + 1, of_node)),
            shape=(_FEATURES + 1, nodes),
        )
        clusters = csc_matrix((np.ones(nodes, np.float32), (np.arange(nodes), parent)), shape=(nodes, above))
        levels.append(Level(weights, clusters, 1.0, LinearLevelPredParams(10, "l3-hinge")))
        above = nodes
    XLinear(levels, _FEATURES, 0).save(folder)


class _Peak:
    """Watches this process's memory."""

    def __init__(self) -> None:
        self._before = self._most = _anonymous()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(0.01):
            self._most = max(self._most, _anonymous())

    def stop(self) -> int:
        """Return the bytes allocated since the beginning."""
        self._stop.set()
        self._thread.join()
        return self._most - self._before


def _anonymous() -> int:
    with open(f"/proc/{os.getpid()}/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("RssAnon:"):
                return 1024 * int(line.split()[1])
    sys.exit("this system does not tell what a process holds")


if __name__ == "__main__":
    main()
