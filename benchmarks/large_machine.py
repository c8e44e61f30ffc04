"""Data of the shape of Amazon-3M on one machine: training, prediction and the first query.

    python -m benchmarks.large_machine FOLDER [--scale 0.1] [--compare] [--keep]

Writes the data set to FOLDER (see ``large_data``) if it is not there, trains with ``xmc-tf linear train`` in a process
of its own, predicts its 5,000 test documents, and answers the first query of another process. With ``--compare`` it
also trains with ``--layout pecos``, which keeps the weights in memory, and compares answers and sizes: small scales
only. Prints one line of JSON: of each side, seconds by the clock and of the processors, peak memory, the model's bytes,
P@1, P@3 and P@5; of the first query, seconds since the process started, memory, and bytes of the weights.
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

from benchmarks.large_data import write

_ROOT = Path(__file__).parents[1]
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
    parser.add_argument("--keep", action="store_true", help="keep the models")
    a = parser.parse_args()
    data = a.folder / f"large-{a.scale:g}"
    if not (data / "Y.tst.npz").exists():
        write(data, a.scale)
    sides = {"search": _side(data, a.threads, "search", a.keep)}
    if a.compare:
        sides["pecos"] = _side(data, a.threads, "pecos", a.keep)
    print(json.dumps({
        "figure": "large_machine", "scale": a.scale, "threads": a.threads, "load": round(os.getloadavg()[0], 1), **sides
    }))  # fmt: skip


def _side(data: Path, threads: int, layout: str, keep: bool) -> dict[str, Any]:
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
    query = data / "query.npz"
    first = json.loads(_output(["-c", _FIRST, str(model), str(_write_query(data, query))]))
    found = {
        "train_s": round(clock, 1), "train_cpu_s": round(cpu, 1), "train_peak_gb": round(peak / 1e9, 2),
        "model_gb": round(sum(path.stat().st_size for path in model.rglob("*") if path.is_file()) / 1e9, 3),
        "weights_in_pecos_format_gb": round(8 * metadata["nr_weights"] / 1e9, 3),
        **predicted,
        "first_query": {**first, "memory_of_weights": round(first["memory"] / (8 * metadata["nr_weights"]), 3)},
    }  # fmt: skip
    if not keep:
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


def _write_query(data: Path, path: Path) -> Path:
    """Write the first test document alone."""
    from scipy.sparse import csr_matrix, save_npz

    from xmc_tf.data import load_matrix

    save_npz(path, csr_matrix(load_matrix(data / "X.tst.npz"))[:1], compressed=False)
    return path


if __name__ == "__main__":
    main()
