"""Training rankers, tree included, by one, two … MPI ranks of one thread on this machine; the same model each time.

    python -m tests.benchmarks.ranks_scaling --features X.npz [E.npy] --labels Y.npz [--ranks 1 2] [--peer PYTHON]

Every number of ranks is run ``--rounds`` times in turns, and the shortest time counts. With ``--peer``, a Python whose
venv has libpecos and mpi4py, its own distributed training runs on the same files, with as many ranks.

Prints one JSON line: seconds from start to end, peak memory a rank (mapped files included, and by the ranks' own table
without them), busy and waiting seconds a rank, and the times against one rank. ``start`` is what a training of fifty
documents takes: loading Python's packages and compiled code, which every rank does for itself; ``times_as_fast`` is
given with it and without, and by the processor time of the busiest rank, which other programs disturb less.
``same`` says that all models are byte for byte the same.
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.distributed.launch import BIN, ENVIRONMENT, REPOSITORY
from xmc_tf.data import load_matrix, save_matrix

_MEASURED = Path(__file__).parent / "sides" / "measured.py"
_ROW = re.compile(r"^ *(\d+) +\S+ +\d+ +([\d,]+) +([\d.]+) +([\d.]+) +([\d,]+) MiB$", re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", nargs="+", required=True, help="X.trn.npz, and dense features beside it")
    parser.add_argument("--labels", required=True, help="Y.trn.npz")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--negatives", default="tfn", help="tfn, tfn+man, …")
    parser.add_argument("--peer", help="a Python that has libpecos and mpi4py")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        few = _few_documents(a, folder)
        _run(1, sys.executable, _ours(few, folder / "warm"), folder)  # compiles
        start = {ranks: _run(ranks, sys.executable, _ours(few, folder / f"few-{ranks}"), folder) for ranks in a.ranks}
        runs: dict[int, list[dict[str, Any]]] = {ranks: [] for ranks in a.ranks}
        for number in range(a.rounds):
            for ranks in a.ranks if number % 2 == 0 else a.ranks[::-1]:
                model = folder / f"{ranks}-{number}"
                runs[ranks].append({**_run(ranks, sys.executable, _ours(a, model), folder), "digest": _digest(model)})
        best = {ranks: min(several, key=lambda run: run["seconds"]) for ranks, several in runs.items()}
        line: dict[str, Any] = {
            "figure": "ranks_scaling", "features": [Path(path).name for path in a.features], "negatives": a.negatives,
            "same": len({run.pop("digest") for several in runs.values() for run in several}) == 1,
            "ours": best,
            "start": start,
            "times_as_fast": _ratios(best, {}, "seconds"),
            "times_as_fast_without_start": _ratios(best, start, "seconds"),
            "times_as_fast_without_start_cpu": _ratios(best, start, "cpu_s"),
        }  # fmt: skip
        if a.peer:
            line["peer"] = {ranks: _run(ranks, a.peer, _peer(a, folder / f"peer-{ranks}"), folder) for ranks in a.ranks}
            line["peer_over_ours"] = {
                n: round(run["seconds"] / best[n]["seconds"], 2) for n, run in line["peer"].items()
            }
    print(json.dumps(line))


def _few_documents(a: argparse.Namespace, folder: Path) -> argparse.Namespace:
    """The same files with the first fifty documents only."""
    paths = []
    for path in [*a.features, a.labels]:
        matrix = load_matrix(path)
        paths.append(str(folder / f"few-{len(paths)}{Path(path).suffix}"))
        save_matrix(paths[-1], matrix[:50])
    return argparse.Namespace(**{**vars(a), "features": paths[:-1], "labels": paths[-1]})


def _ratios(runs: dict[int, Any], start: dict[int, Any], what: str) -> dict[int, float]:
    """How many times as fast as the first number of ranks."""

    def taken(ranks: int) -> float:
        whole, before = runs[ranks][what], start.get(ranks, {}).get(what, 0)
        return max(whole) - max(before) if isinstance(whole, list) else whole - before

    first = next(iter(runs))
    return {ranks: round(taken(first) / taken(ranks), 3) for ranks in runs}


def _ours(a: argparse.Namespace, model: Path) -> list[str]:
    return ["-m", "xmc_tf.linear.train", "-n", "1", *_shared(a, model)]


def _peer(a: argparse.Namespace, model: Path) -> list[str]:
    return ["-m", "pecos.distributed.xmc.xlinear.train", "--threads", "1", *_shared(a, model)]


def _shared(a: argparse.Namespace, model: Path) -> list[str]:
    return ["-x", *a.features, "-y", a.labels, "-m", str(model), "-ns", a.negatives]


def _run(ranks: int, python: str, arguments: list[str], folder: Path) -> dict[str, Any]:
    for old in folder.glob("*.json"):
        old.unlink()
    launcher = [str(BIN / "mpiexec"), "-n", str(ranks)]
    command = [*launcher, python, str(_MEASURED), str(folder), python, *arguments]
    print(" ".join(command), file=sys.stderr)
    environment = {**os.environ, **ENVIRONMENT}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    figures = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(ranks)]
    rows = _ROW.findall(done.stderr)
    return {
        "seconds": max(one["seconds"] for one in figures),
        "peak_mb": [one["peak_mb"] for one in figures],
        "cpu_s": [one["cpu_s"] for one in figures],
        **({"busy_s": [float(row[2]) for row in rows], "waiting_s": [float(row[3]) for row in rows],
            "own_peak_mb": [float(row[4].replace(",", "")) for row in rows]} if rows else {}),
    }  # fmt: skip


def _digest(model: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for path in model.rglob("*") if path.is_file()):
        digest.update(str(path.relative_to(model)).encode() + path.read_bytes())
    return digest.hexdigest()


if __name__ == "__main__":
    main()
