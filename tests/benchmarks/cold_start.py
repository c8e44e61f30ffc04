"""The duration of one query from the shell: a fresh process with compiled kernels in the cache.

    python -m tests.benchmarks.cold_start [--model DIR] [--runs 5]

Without a model, a small one is trained on texts made up here. Prints one JSON line: seconds of
``python -m xmc_tf.linear.predict`` for one text (with TensorFlow) and for one row of features (without).
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import scipy.sparse as smat

from xmc_tf.data import save_matrix
from xmc_tf.models.xr_linear import XRLinear


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a model that reads text")
    parser.add_argument("--runs", type=int, default=5)
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        model = a.model or _made_up(work / "model")
        row = XRLinear.load(model).features(["one short text with some words"]).sparse
        save_matrix(work / "row.npz", row)
        predict = [sys.executable, "-m", "xmc_tf.linear.predict", "-m", str(model)]
        seconds = {
            "from_text_s": _seconds([*predict, "-q", "one short text with some words"], a.runs),
            "from_features_s": _seconds([*predict, "-x", str(work / "row.npz")], a.runs),
        }
    print(json.dumps({"figure": "cold_start", "model": model.name, **seconds}))


def _seconds(command: list[str], runs: int) -> float:
    """Return the median of all runs except the first, which may compile."""
    taken = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        taken.append(time.perf_counter() - start)
    return round(median(taken[1:]), 3)


def _made_up(folder: Path) -> Path:
    """Return a model of 500 labels over 5,000 texts of made-up words."""
    random = np.random.default_rng(0)
    texts = [" ".join(f"word{n}" for n in random.zipf(1.3, 20) % 3000) for _ in range(5000)]
    labels = random.integers(0, 500, (5000, 3))
    Y = smat.csr_matrix(
        (np.ones(labels.size, np.float32), labels.ravel(), np.arange(0, labels.size + 1, 3)), (5000, 500)
    )
    XRLinear.train(texts, Y).save(folder)
    return folder


if __name__ == "__main__":
    main()
