"""The cost of verifying a model's files when the model is loaded.

    python -m tests.benchmarks.load_verification [--data DIR] [--weights 100000000] [--rounds 7]

For models without a stored layout for search: with one, loading reads no weights. Loads a trained model (of ``--data``:
X.trn.txt, Y.trn.npz; else of texts made up here) and one of that many random weights, with and without verification in
turns, files in the page cache. Prints one JSON line: the median seconds until a model is ready to answer and what
verification adds to them (aim: below 10 %); the same for reading alone, which maps the weights and leaves their
arrangement for search to the first query; and the processors' seconds.
"""

import argparse
import json
import shutil
import tempfile
import time
import zlib
from contextlib import nullcontext
from pathlib import Path
from unittest import mock

import numpy as np
from scipy.sparse import csc_matrix, csr_matrix

from xmc_tf.common.threads import thread_count
from xmc_tf.data import TextFile, load_matrix
from xmc_tf.linear.level import Level
from xmc_tf.linear.xlinear import XLinear
from xmc_tf.models.linear.folder import write_model
from xmc_tf.models.metadata import ModelMetadata
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.params import LinearLevelPredParams
from xmc_tf.tree import LabelTree

_COMPARISONS = "xmc_tf.common.folders.checksums._comparisons"
_FEATURES = 200_000
_A_LABEL = 2_000  # weights of a label


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a folder of X.trn.txt and Y.trn.npz to train the first model on")
    parser.add_argument("--weights", type=int, default=100_000_000, help="of the second model")
    parser.add_argument("--rounds", type=int, default=7)
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trained, generated = Path(folder) / "trained", Path(folder) / "generated"
        _train(a.data, trained)
        _generate(a.weights, generated)
        for model in (trained, generated):
            shutil.rmtree(model / "ranker" / "search", ignore_errors=True)
        models = {"trained": _measured(trained, a.rounds), "generated": _measured(generated, a.rounds)}
    content = np.ones(1 << 28, np.uint8)
    start = time.thread_time()
    zlib.crc32(content)
    speed = content.size / (time.thread_time() - start) / 1e9
    print(
        json.dumps(
            {
                "figure": "load_verification",
                "aim": "below 0.10",
                "cores": thread_count(-1),
                "crc32_gb_per_s": round(speed, 2),
                **models,
            }
        )
    )


def _measured(model: Path, rounds: int) -> dict[str, float | int]:
    """Measure the seconds of a load with and without verification, in alternating order."""
    taken: dict[bool, list[tuple[float, float, float]]] = {True: [], False: []}
    for number in range(rounds + 1):
        for verify in (True, False) if number % 2 else (False, True):
            seconds = _load(model, verify)
            if number:  # the first reads the files from the disk
                taken[verify].append(seconds)
    (with_s, with_cpu_s, ready_with_s), (without_s, without_cpu_s, ready_without_s) = (
        np.median(taken[verify], axis=0) for verify in (True, False)
    )
    size = sum(path.stat().st_size for path in model.rglob("*") if path.is_file())
    return {
        "weights": XRLinear.load(model).ranker.nr_weights,
        "mb": round(size / 1e6, 1),
        "ready_without_s": round(ready_without_s, 4),
        "ready_with_s": round(ready_with_s, 4),
        "added": round(ready_with_s / ready_without_s - 1, 3),
        "read_without_s": round(without_s, 4),
        "read_with_s": round(with_s, 4),
        "added_to_reading": round(with_s / without_s - 1, 3),
        "read_without_cpu_s": round(without_cpu_s, 4),
        "read_with_cpu_s": round(with_cpu_s, 4),
    }


def _load(model: Path, verify: bool) -> tuple[float, float, float]:
    """Seconds of reading on the clock and of all processors, and on the clock until the model is ready to answer."""
    comparisons = nullcontext() if verify else mock.patch(_COMPARISONS, return_value=([], []))
    with comparisons:
        start, cpu = time.perf_counter(), time.process_time()
        model_read = XRLinear.load(model)
        read, read_cpu = time.perf_counter() - start, time.process_time() - cpu
        model_read.ranker.chunks(0, thread_count(-1))
        return read, read_cpu, time.perf_counter() - start


def _train(data: Path | None, folder: Path) -> None:
    if data is not None:
        XRLinear.train(TextFile(data / "X.trn.txt"), load_matrix(data / "Y.trn.npz").tocsr()).save(folder)
        return
    random = np.random.default_rng(0)
    texts = [" ".join(f"word{n}" for n in random.zipf(1.3, 20) % 3000) for _ in range(5000)]
    labels = random.integers(0, 500, (5000, 3))
    Y = csr_matrix((np.ones(labels.size, np.float32), labels.ravel(), np.arange(0, labels.size + 1, 3)), (5000, 500))
    XRLinear.train(texts, Y).save(folder)


def _generate(weights: int, folder: Path) -> None:
    """Return a model of two levels with random weights, most of them on the second."""
    random = np.random.default_rng(0)
    labels = max(2, weights // _A_LABEL)
    clusters = max(1, labels // 100)
    parents = [np.zeros(clusters, np.int32), np.sort(np.arange(labels, dtype=np.int32) % clusters)]
    levels = []
    for parent in parents:
        nodes = len(parent)
        begin = random.integers(0, _FEATURES // _A_LABEL, nodes)
        rows = (begin[:, None] + np.arange(_A_LABEL) * (_FEATURES // _A_LABEL)).astype(np.int32)
        values = random.standard_normal(rows.size, np.float32)
        weights_of = csc_matrix(
            (values, rows.ravel(), np.arange(0, rows.size + 1, _A_LABEL, dtype=np.int32)), (_FEATURES + 1, nodes)
        )
        ones = np.ones(nodes, np.float32), (np.arange(nodes), parent)
        levels.append(Level(weights_of, csc_matrix(ones), 1.0, LinearLevelPredParams()))
    tree = LabelTree.from_chain([level.clusters for level in levels])
    content = {"model": "XLinear", "nr_features": _FEATURES, "nr_labels": labels, "versions": {"xmc_tf": ""}}
    write_model(folder, [tree], None, ModelMetadata(content), [XLinear(levels, _FEATURES, 0).save], None)


if __name__ == "__main__":
    main()
