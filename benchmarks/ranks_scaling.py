"""Training rankers, tree included, by one, two … MPI ranks of one thread on this machine; the same model each time.

    python -m benchmarks.ranks_scaling --features X.npz [E.npy] --labels Y.npz [--ranks 1 2] [--peer PYTHON]

Every number of ranks is run ``--rounds`` times in turns; figures are those of the shortest time. With ``--peer``, a
Python whose venv has libpecos and mpi4py, its own distributed training runs on the same files, once for each number.

Prints a table of the ranks' memory, and one JSON line:

``ours``, ``peer``      seconds from start to end, and of each rank: processor seconds, peak memory (``peak_mb`` with
                        mapped files, ``own_mb`` without), busy and waiting seconds, and its share of the weights
``seconds_by_round``    of every round, in whose few minutes the machine changes its speed least
``times_as_fast``       of the shortest times; ``times_as_fast_by_round`` the median of what each round alone would say
``start``               what a training of fifty documents takes: loading packages and compiled code, which every rank
                        does for itself; ``times_as_fast`` is given with it and without, and by the processor time of
                        the busiest rank, which other programs disturb less
``alone_together``      as many trainings of one rank as there were ranks, side by side, each by itself: what of each
                        other's caches and memory they take. ``n`` ranks can be no more than ``bound`` times as fast
``same``                all models are byte for byte the same
``peer_over_ours``      its time, processor time, and memory of rank 0 over ours

``--copies K`` makes larger data of what is given: the documents K times, each time with labels of their own.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from scipy.sparse import block_diag, csr_matrix, issparse, vstack

from tests.distributed.launch import BIN, ENVIRONMENT, REPOSITORY
from xmc_tf.data import load_matrix, save_matrix

_SIDES = Path(__file__).parent / "sides"
_ROW = re.compile(r"^ *(\d+) +\S+ +\d+ +([\d,]+) +([\d.]+) +([\d.]+) +([\d,]+) MiB +([\d,.]+) MiB$", re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", nargs="+", required=True, help="X.trn.npz, and dense features beside it")
    parser.add_argument("--labels", required=True, help="Y.trn.npz")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--copies", type=int, default=1, help="of the documents, each with labels of its own")
    parser.add_argument("--negatives", default="tfn", help="tfn, tfn+man, …")
    parser.add_argument("--peer", help="a Python that has libpecos and mpi4py")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if a.copies > 1:
            a = _other_data(a, folder, "copies", lambda X: _copies(X, a.copies), lambda Y: block_diag([Y] * a.copies))
        few = _other_data(a, folder, "few", lambda X: X[:50], lambda Y: Y[:50])
        for ranks in a.ranks:  # compiles, and reads what is only needed by many ranks
            _run(ranks, sys.executable, _ours(few, folder / f"warm-{ranks}"), folder)
        start = {ranks: _run(ranks, sys.executable, _ours(few, folder / f"few-{ranks}"), folder) for ranks in a.ranks}
        line = {"figure": "ranks_scaling", "features": [Path(path).name for path in a.features], "copies": a.copies}
        line |= {"negatives": a.negatives, **_our_figures(a, folder, start), "start": start}
        if a.peer:
            line |= _peers_figures(a, folder, line["ours"])
    print(_memory_table(line), file=sys.stderr)
    print(json.dumps(line))


def _our_figures(a: argparse.Namespace, folder: Path, start: dict[int, Any]) -> dict[str, Any]:
    runs: dict[int, list[dict[str, Any]]] = {ranks: [] for ranks in a.ranks}
    together: dict[int, list[float]] = {ranks: [] for ranks in a.ranks if ranks > 1}
    digests = set()
    for number in range(a.rounds):
        for ranks in a.ranks if number % 2 == 0 else a.ranks[::-1]:
            model = folder / "model"
            runs[ranks].append(_run(ranks, sys.executable, _ours(a, model), folder))
            digests.add(_digest(model))
            shutil.rmtree(model)
        for ranks in together:
            together[ranks].append(_side_by_side(a, ranks, folder))
    best = {ranks: min(several, key=lambda run: run["seconds"]) for ranks, several in runs.items()}
    seconds = {ranks: [run["seconds"] for run in several] for ranks, several in runs.items()}
    first = seconds[a.ranks[0]]
    out: dict[str, Any] = {
        "same": len(digests) == 1,
        "ours": best,
        "seconds_by_round": seconds,
        "times_as_fast": _ratios(best, {}, "seconds"),
        "times_as_fast_by_round": {
            ranks: round(median(one / other for one, other in zip(first, taken, strict=True)), 3)
            for ranks, taken in seconds.items()
        },
        "times_as_fast_without_start": _ratios(best, start, "seconds"),
        "times_as_fast_without_start_cpu": _ratios(best, start, "cpu_s"),
    }
    if 1 in best:
        over = {ranks: min(several) / best[1]["seconds"] for ranks, several in together.items()}
        out["alone_together"] = {
            n: {
                "over_one": round(x, 3),
                "bound": round(n / x, 3),
                "of_bound": round(out["times_as_fast"][n] * x / n, 3),
            }
            for n, x in over.items()
        }
    return out


def _peers_figures(a: argparse.Namespace, folder: Path, ours: dict[int, Any]) -> dict[str, Any]:
    arguments = [str(_SIDES / "peer_over_ranks.py"), "--threads", "1"]
    runs = {n: _run(n, a.peer, [*arguments, *_shared(a, folder / f"peer-{n}")], folder) for n in a.ranks}
    ratios = {
        n: {
            "seconds": round(run["seconds"] / ours[n]["seconds"], 2),
            "cpu_s": round(max(run["cpu_s"]) / max(ours[n]["cpu_s"]), 2),
            **{f"rank_0_{what}": round(run[what][0] / ours[n][what][0], 2) for what in ("peak_mb", "own_mb")},
        }
        for n, run in runs.items()
    }
    return {"peer": runs, "peer_over_ours": ratios}


def _memory_table(line: dict[str, Any]) -> str:
    """Print one line per rank: its memory, and its share of the weights."""
    rows = [f"{'ranks':>5}  {'rank':>4}  {'own peak, MB':>12}  {'above the start':>15}  {'weights':>7}"]
    for ranks, run in line["ours"].items():
        for rank, own in enumerate(run["own_mb"]):
            above = own - line["start"][ranks]["own_mb"][rank]
            share = f"{run['weights_share'][rank]:.0%}" if "weights_share" in run else "all"
            rows.append(f"{ranks:>5}  {rank:>4}  {own:>12,.0f}  {above:>15,.0f}  {share:>7}")
    return "\n".join(rows)


def _copies(X: Any, copies: int) -> Any:
    return vstack([X] * copies, format="csr") if issparse(X) else np.concatenate([X] * copies)


def _other_data(a: argparse.Namespace, folder: Path, name: str, features: Any, labels: Any) -> argparse.Namespace:
    """Return the same command with other files."""
    paths: list[str] = []
    for path, change in [*((path, features) for path in a.features), (a.labels, labels)]:
        changed = change(load_matrix(path))
        paths.append(str(folder / f"{name}-{len(paths)}{Path(path).suffix}"))
        save_matrix(paths[-1], csr_matrix(changed) if issparse(changed) else changed)
    return argparse.Namespace(**{**vars(a), "features": paths[:-1], "labels": paths[-1]})


def _ratios(runs: dict[int, Any], start: dict[int, Any], what: str) -> dict[int, float]:
    """Return the speed-up over the first number of ranks; 0 if there is nothing to compare."""

    def taken(ranks: int) -> float:
        whole, before = runs[ranks][what], start.get(ranks, {}).get(what, 0)
        return max(whole) - max(before) if isinstance(whole, list) else whole - before

    first = next(iter(runs))
    return {ranks: round(taken(first) / taken(ranks), 3) if taken(ranks) > 0 else 0.0 for ranks in runs}


def _ours(a: argparse.Namespace, model: Path) -> list[str]:
    return ["-m", "xmc_tf.linear.train", "-n", "1", *_shared(a, model)]


def _shared(a: argparse.Namespace, model: Path) -> list[str]:
    return ["-x", *a.features, "-y", a.labels, "-m", str(model), "-ns", a.negatives]


def _start(ranks: int, python: str, arguments: Sequence[str], folder: Path) -> subprocess.Popen[str]:
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.json"):
        old.unlink()
    launcher = [str(BIN / "mpiexec"), "-n", str(ranks)]
    command = [*launcher, python, str(_SIDES / "measured.py"), str(folder), python, *arguments]
    print(" ".join(command), file=sys.stderr)
    return subprocess.Popen(
        command, cwd=REPOSITORY, env={**os.environ, **ENVIRONMENT}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def _run(ranks: int, python: str, arguments: Sequence[str], folder: Path) -> dict[str, Any]:
    process = _start(ranks, python, arguments, folder)
    said, _ = process.communicate()
    if process.returncode:
        sys.exit(said)
    figures = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(ranks)]
    out = {"seconds": max(one["seconds"] for one in figures)}
    out |= {what: [one[what] for one in figures] for what in ("cpu_s", "peak_mb", "own_mb")}
    if rows := _ROW.findall(said):
        weights = [float(row[5].replace(",", "")) for row in rows]
        out |= {"busy_s": [float(row[2]) for row in rows], "waiting_s": [float(row[3]) for row in rows]}
        out["weights_share"] = [round(one / max(sum(weights), 1e-9), 3) for one in weights]
    return out


def _side_by_side(a: argparse.Namespace, number: int, folder: Path) -> float:
    """Return seconds of the slowest of several trainings of one rank that run at the same time."""
    folders = [folder / f"alone-{i}" for i in range(number)]
    processes = [_start(1, sys.executable, _ours(a, one / "model"), one) for one in folders]
    for process in processes:
        said, _ = process.communicate()
        if process.returncode:
            sys.exit(said)
    seconds = [json.loads((one / "0.json").read_text())["seconds"] for one in folders]
    for one in folders:
        shutil.rmtree(one)
    return float(max(seconds))


def _digest(model: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for path in model.rglob("*") if path.is_file()):
        digest.update(str(path.relative_to(model)).encode() + path.read_bytes())
    return digest.hexdigest()


if __name__ == "__main__":
    main()
