"""Rankers against libpecos on the same features, the same tree and the same machine, in turns.

    python -m benchmarks.rankers_vs_pecos --peer PYTHON --features DIR --data DIR [--dense 384] [--threads 2]

PYTHON runs a venv that has libpecos. FEATURES holds X.trn.npz, X.tst.npz and the tree hlt/ in PECOS's format, DATA
holds Y.trn.npz and Y.tst.npz. With ``--dense D`` every document also has D dense features: those of X.trn.dense.npy
and X.tst.dense.npy where FEATURES has them, else random ones of length one.

Prints one JSON line: both sides' figures, and the ratios peer / ours (above 1: ours is faster or smaller).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import scipy.sparse as smat

_SIDES = Path(__file__).parent / "sides"
_ROOT = Path(__file__).parents[1]
_RATIOS = ("train_s", "batch_ms_per_query", "one_query_p50_ms", "train_peak_mb", "predict_peak_mb")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, help="a Python that has libpecos")
    parser.add_argument("--features", required=True, type=Path)
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--dense", type=int, default=0, help="dense features beside the sparse ones")
    parser.add_argument("--threads", type=int, default=2, help="for training (prediction: one)")
    parser.add_argument("--threshold", type=float, default=0.1)
    parser.add_argument("--beam", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=1, help="times that each side trains and predicts")
    a = parser.parse_args()
    if a.dense:
        _dense_features(a.features, a.dense)
    runs: dict[str, list[dict[str, Any]]] = {"ours": [], "peer": []}
    with tempfile.TemporaryDirectory() as folder:
        for round_ in range(a.rounds):
            for side in ("peer", "ours") if round_ % 2 else ("ours", "peer"):
                arguments = {
                    "features": str(a.features), "data": str(a.data), "dense": bool(a.dense), "threads": a.threads,
                    "threshold": a.threshold, "beam": a.beam, "model": f"{folder}/{side}", "warm": side == "ours",
                }  # fmt: skip
                runs[side].append(
                    {**_run(side, a.peer, "train", arguments), **_run(side, a.peer, "predict", arguments)}
                )
    figures = {side: {key: _middle([run[key] for run in many]) for key in many[0]} for side, many in runs.items()}
    ratios = {key: round(figures["peer"][key] / figures["ours"][key], 2) for key in _RATIOS}
    print(json.dumps({
        "figure": "rankers_vs_pecos", "data": a.data.name, "dense": a.dense, "threads": a.threads, **figures,
        "peer_over_ours": ratios,
    }))  # fmt: skip


def _run(side: str, peer: str, job: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Run one job of one side in a separate process, to measure its memory."""
    ours = [sys.executable, "-m", "benchmarks.sides.our_side"]
    command = ours if side == "ours" else [peer, str(_SIDES / "peer_side.py")]
    print(f"{side}: {job}", file=sys.stderr)
    run = subprocess.run(
        [*command, job, json.dumps(arguments)], cwd=_ROOT, stdout=subprocess.PIPE, text=True, check=True,
        env={**os.environ, "PYTHONPATH": ""},
    )  # fmt: skip
    return json.loads(run.stdout.splitlines()[-1])


def _middle(values: list[Any]) -> Any:
    return (
        [_middle(list(column)) for column in zip(*values, strict=True)]
        if isinstance(values[0], list)
        else median(values)
    )


def _dense_features(features: Path, width: int) -> None:
    """Random directions where there are no real embeddings: they cost the same."""
    random = np.random.default_rng(0)
    for name in ("trn", "tst"):
        path = features / f"X.{name}.dense.npy"
        if not path.exists():
            rows = smat.load_npz(features / f"X.{name}.npz").shape[0]
            dense = random.standard_normal((rows, width)).astype(np.float32)
            np.save(path, dense / np.linalg.norm(dense, axis=1, keepdims=True))


if __name__ == "__main__":
    main()
