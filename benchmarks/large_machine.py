"""Data of the shape of Amazon-3M on one machine: training, prediction and the first query.

    python -m benchmarks.large_machine FOLDER [--scale 0.1] [--compare]

Writes the data set to FOLDER if it is not there. At scale 1: 1.7 million training documents with 36 labels and 50
features each, 2.8 million labels, 337,000 features. A document has a topic, of whose thousand labels it has some; most
of its features are among the dozen of its labels. Topics, labels and features have the frequencies of Zipf's law.

Trains with ``xmc-tf linear train`` in a process of its own, predicts the 5,000 test documents, and answers the first
query of another process. With ``--compare`` it also trains with ``--layout pecos``, which keeps the weights in memory,
and compares answers and sizes: small scales only. Prints one line of JSON: of each side, seconds by the clock and of
the processors, peak memory, the model's bytes, P@1, P@3 and P@5; of the first query, seconds since the process started,
memory, and bytes of the weights.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, save_npz, vstack

from xmc_tf.data import load_matrix, save_matrix

_ROOT = Path(__file__).parents[1]
DOCUMENTS, LABELS, FEATURES, TESTS = 1_700_000, 2_800_000, 337_000, 5_000
_LABELS_EACH, _FEATURES_EACH = 38.0, 54.5  # drawn, some of them twice
_TOPIC = 1000  # labels of a topic
_OWN = 12  # features of a label
_BLOCK = 50_000
_PREDICT = """
import json, sys, time
from pathlib import Path
import numpy as np
from xmc_tf.data import load_matrix
from xmc_tf.metrics import evaluate
from xmc_tf.models.xr_linear import XRLinear
model, data = XRLinear.load(sys.argv[1]), Path(sys.argv[2])
X, truth = (load_matrix(data / f"{name}.tst.npz") for name in "XY")
began = time.monotonic()
found = model.predict(X, only_topk=5, threads=int(sys.argv[3]))
seconds = time.monotonic() - began
found.sort_indices()
measures = evaluate(truth, found, (1, 3, 5))
print(json.dumps({f"P@{k}": round(100 * measures.at("P", k), 2) for k in (1, 3, 5)} | {
    "predict_ms_a_document": round(1000 * seconds / X.shape[0], 3), "sum_of_scores": float(found.data.sum(dtype="f8")),
}))
"""
_FIRST = """
import json, os, sys, time
import numpy as np
from scipy.sparse import csr_matrix
from xmc_tf.models.xr_linear import XRLinear
data = np.load(sys.argv[2])
query = csr_matrix((data["data"], data["indices"], data["indptr"]), shape=tuple(data["shape"]))
model = XRLinear.load(sys.argv[1])
best = model.predict(query, only_topk=10, threads=1)
started = int(open("/proc/self/stat").read().rsplit(")", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")
seconds = float(open("/proc/uptime").read().split()[0]) - started
memory = int(next(line for line in open("/proc/self/status") if line.startswith("VmRSS")).split()[1]) * 1024
print(json.dumps({"seconds": round(seconds, 2), "cpu_s": round(time.process_time(), 2), "memory": memory}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="for the data and the models")
    parser.add_argument("--scale", type=float, default=0.1, help="share of the documents and labels")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compare", action="store_true", help="also train in memory")
    a = parser.parse_args()
    data = a.folder / f"large-{a.scale:g}"
    if not (data / "Y.tst.npz").exists():
        write(data, a.scale)
    sides = {"search": _side(data, a.threads, "search")}
    if a.compare:
        sides["pecos"] = _side(data, a.threads, "pecos")
    print(json.dumps({
        "figure": "large_machine", "scale": a.scale, "threads": a.threads, "load": round(os.getloadavg()[0], 1), **sides
    }))  # fmt: skip


def write(folder: Path, scale: float) -> None:
    """Write the data set of a share of the documents and labels to a new folder."""
    folder.mkdir(parents=True, exist_ok=True)
    nr_labels = round(LABELS * scale)
    for part, count, seed in (("trn", round(DOCUMENTS * scale), 1), ("tst", TESTS, 2)):
        blocks = [
            _block(min(_BLOCK, count - first), nr_labels, np.random.default_rng([seed, first]))
            for first in range(0, count, _BLOCK)
        ]
        save_matrix(folder / f"X.{part}.npz", vstack([features for features, _ in blocks], format="csr"))
        save_matrix(folder / f"Y.{part}.npz", vstack([labels for _, labels in blocks], format="csr"))


def _block(count: int, nr_labels: int, random: np.random.Generator) -> tuple[csr_matrix, csr_matrix]:
    """Return features and labels of some documents."""
    each = np.maximum(random.poisson(_LABELS_EACH * random.gamma(4.0, 0.25, count)), 1)
    starts = np.concatenate(([0], np.cumsum(each)))
    topics = -(-nr_labels // _TOPIC)
    topic = np.repeat((topics * random.random(count) ** 1.5).astype(np.int64), each)
    label = np.minimum(topic * _TOPIC + (_TOPIC * random.random(starts[-1]) ** 2).astype(np.int64), nr_labels - 1)
    words = np.maximum(random.poisson(_FEATURES_EACH * random.gamma(4.0, 0.25, count)), 3)
    document = np.repeat(np.arange(count), words)
    chosen = label[starts[document] + (random.random(len(document)) ** 1.5 * each[document]).astype(np.int64)]
    own = (_OWN * random.random(len(document)) ** 2).astype(np.int64)
    uniform = np.where(random.random(len(document)) < 0.7, _hashed(chosen * _OWN + own), random.random(len(document)))
    feature = np.minimum((FEATURES * uniform**3).astype(np.int64), FEATURES - 1)
    X = csr_matrix(
        (np.ones(len(feature), np.float32), feature.astype(np.int32), np.concatenate(([0], np.cumsum(words)))),
        shape=(count, FEATURES),
    )
    X.sum_duplicates()
    X.data = (1.0 + np.log(X.data)) * (1.0 + np.log1p(X.indices / 10.0))
    norms = np.sqrt(np.add.reduceat(np.square(X.data), X.indptr[:-1]))
    X.data = (X.data / np.repeat(norms, np.diff(X.indptr))).astype(np.float32)
    # Spread over all numbers, so that neighbours are not alike: the factor is prime and divides no number of labels.
    Y = csr_matrix(
        (np.ones(len(label), np.float32), (label * 15_485_863 % nr_labels).astype(np.int32), starts),
        shape=(count, nr_labels),
    )
    Y.sum_duplicates()
    Y.data[:] = 1.0
    return X, Y


def _hashed(number: np.ndarray) -> np.ndarray:
    """Return a number from 0 to 1 for each whole number, always the same."""
    mixed = number.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
    return (mixed >> np.uint64(11)).astype(np.float64) / 2.0**53


def _side(data: Path, threads: int, layout: str) -> dict[str, Any]:
    """Train, predict and ask in one layout."""
    model = data / f"model-{layout}"
    shutil.rmtree(model, ignore_errors=True)
    files = ["-x", str(data / "X.trn.npz"), "-y", str(data / "Y.trn.npz")]
    train = ["-m", "xmc_tf.linear.train", *files, "-m", str(model), "-n", str(threads), "--layout", layout]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    peak = _peak_of([sys.executable, *train])
    clock, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    metadata = json.loads((model / "params.json").read_text())
    predicted = json.loads(_output(["-c", _PREDICT, str(model), str(data), str(threads)]))
    save_npz(data / "query.npz", csr_matrix(load_matrix(data / "X.tst.npz"))[:1], compressed=False)
    first = json.loads(_output(["-c", _FIRST, str(model), str(data / "query.npz")]))
    found = {
        "train_s": round(clock, 1), "train_cpu_s": round(cpu, 1), "train_peak_gb": round(peak / 1e9, 2),
        "model_gb": round(sum(path.stat().st_size for path in model.rglob("*") if path.is_file()) / 1e9, 3),
        "weights_in_pecos_format_gb": round(8 * metadata["nr_weights"] / 1e9, 3),
        **predicted,
        "first_query": {**first, "memory_of_weights": round(first["memory"] / (8 * metadata["nr_weights"]), 3)},
    }  # fmt: skip
    shutil.rmtree(model)
    return found


def _peak_of(command: list[str]) -> int:
    """Run a command and return the most bytes that its process had in memory."""
    process = subprocess.Popen(command, cwd=_ROOT, stdout=sys.stderr)
    status, usage = os.wait4(process.pid, 0)[1:]
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"the training failed with status {process.returncode}")
    return usage.ru_maxrss * 1024


def _output(arguments: list[str]) -> str:
    run = subprocess.run([sys.executable, *arguments], cwd=_ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return run.stdout.splitlines()[-1]


if __name__ == "__main__":
    main()
