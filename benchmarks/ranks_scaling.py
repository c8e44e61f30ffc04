"""Training rankers, tree included, by one, two … MPI ranks of one thread on this machine; the same model each time.

    python -m benchmarks.ranks_scaling --features X.npz [E.npy] --labels Y.npz [--ranks 1 2] [--peer PYTHON]

Every number of ranks is run ``--rounds`` times in turns; figures are those of the shortest time. With ``--peer``, a
Python whose venv has libpecos and mpi4py, its own distributed training runs on the same files, once for each number.

Prints one JSON line:

``ours``, ``peer``      seconds from start to end, and of each rank: processor seconds, and peak memory, with mapped
                        files (``peak_mb``) and without (``own_mb``)
``seconds_by_round``    of every round, in whose few minutes the machine changes its speed least
``times_as_fast``       of the shortest times; ``times_as_fast_by_round``: the median of the rounds' own ratios
``possible``            the same of as many trainings of one rank side by side, each by itself, which take each other's
                        caches and memory: the limit of the machine
``same``                all models are byte for byte the same
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from tests.distributed.launch import BIN, ENVIRONMENT, REPOSITORY

_SIDES = Path(__file__).parent / "sides"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", nargs="+", required=True, help="X.trn.npz, and dense features beside it")
    parser.add_argument("--labels", required=True, help="Y.trn.npz")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--negatives", default="tfn", help="tfn, tfn+man, …")
    parser.add_argument("--peer", help="a Python that has libpecos and mpi4py")
    a = parser.parse_args()
    shared = ["-x", *a.features, "-y", a.labels, "-ns", a.negatives, "-m"]
    ours = [sys.executable, "-m", "xmc_tf.linear.train", "-n", "1", *shared]
    theirs = [a.peer, str(_SIDES / "peer_over_ranks.py"), "--threads", "1", *shared]
    runs: dict[int, list[dict[str, Any]]] = {ranks: [] for ranks in a.ranks}
    alone: dict[int, list[float]] = {ranks: [] for ranks in a.ranks if ranks > 1}
    digests = set()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(a.rounds):
            for ranks in a.ranks if number % 2 == 0 else a.ranks[::-1]:
                runs[ranks] += _run([_start(ranks, ours, folder)], ranks)
                digests.add(_digest(folder / "model"))
                shutil.rmtree(folder / "model")
            for ranks in alone:
                folders = [folder / f"alone-{i}" for i in range(ranks)]
                beside = _run([_start(1, ours, one) for one in folders], 1)
                alone[ranks].append(max(one["seconds"] for one in beside))
        peer = {ranks: _run([_start(ranks, theirs, folder / f"peer-{ranks}")], ranks)[0] for ranks in a.ranks if a.peer}
    best = {ranks: min(several, key=lambda run: run["seconds"]) for ranks, several in runs.items()}
    seconds = {ranks: [run["seconds"] for run in several] for ranks, several in runs.items()}
    first = seconds[a.ranks[0]]
    print(json.dumps({
        "figure": "ranks_scaling", "features": [Path(path).name for path in a.features], "negatives": a.negatives,
        "same": len(digests) == 1, "ours": best, "seconds_by_round": seconds, "peer": peer,
        "times_as_fast": {ranks: round(min(first) / min(taken), 3) for ranks, taken in seconds.items()},
        "times_as_fast_by_round": {
            ranks: round(median(one / other for one, other in zip(first, taken, strict=True)), 3)
            for ranks, taken in seconds.items()
        },
        "possible": {ranks: round(ranks * min(first) / min(taken), 3) for ranks, taken in alone.items()},
    }))  # fmt: skip


def _start(ranks: int, command: Sequence[str], folder: Path) -> tuple[subprocess.Popen[str], Path]:
    folder.mkdir(exist_ok=True)
    measured = [sys.executable, str(_SIDES / "measured.py"), str(folder), *command, str(folder / "model")]
    process = subprocess.Popen(
        [str(BIN / "mpiexec"), "-n", str(ranks), *measured], cwd=REPOSITORY, env={**os.environ, **ENVIRONMENT},
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return process, folder


def _run(started: list[tuple[subprocess.Popen[str], Path]], ranks: int) -> list[dict[str, Any]]:
    """Wait for trainings, and return their figures."""
    out = []
    for process, folder in started:
        said, _ = process.communicate()
        if process.returncode:
            sys.exit(said)
        figures = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(ranks)]
        out.append({what: [one[what] for one in figures] for what in ("cpu_s", "peak_mb", "own_mb")})
        out[-1]["seconds"] = max(one["seconds"] for one in figures)
    return out


def _digest(model: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for path in model.rglob("*") if path.is_file()):
        digest.update(str(path.relative_to(model)).encode() + path.read_bytes())
    return digest.hexdigest()


if __name__ == "__main__":
    main()
