"""The time to the first answer of a large linear model, its speed and memory, and what a second process adds.

    python -m benchmarks.instant_start [--labels 800000] [--queries 5000] [--folder DIR] [--pecos PYTHON]

Generates a model (``sides/generated_rankers.py``), and starts processes that load it and answer queries on one thread.
Files are in the page cache. Prints one JSON line; of ``xmc_tf``, the best of some rounds:

``first_answer_s``   from the start of the process to the answer to one query (aim: 1 s)
``memory``           memory of the process after all queries, with mapped files, over that of the weights (aim: 1.15)
``second_adds``      what a second process adds to that memory, over that of the weights (aim: 0.10)
``batch_per_s``      queries per processor second in a batch; ``single_per_s``: one at a time; ``single_matrix_per_s``:
                     so that each answer is a sparse matrix, as libpecos gives it

With ``--pecos``, a Python that has libpecos, it answers the same queries with the same model and settings in turns with
ours, with its weights in chunks that are searched (its default) and hashed; ``same_best`` is the share of equal best
labels (aims: 4 times its speed in a batch, 6 times one at a time).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.sides.generated_rankers import write_generated
from xmc_tf.rankers import XLinear

_SIDE = Path(__file__).parent / "sides" / "our_instant_start.py"
_ROOT = Path(__file__).parents[1]
_FORMS = ("BINARY_SEARCH_CHUNKED", "HASH_CHUNKED")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, default=800_000)
    parser.add_argument("--queries", type=int, default=5_000)
    parser.add_argument("--folder", type=Path, help="keep the generated model there, and use it again")
    parser.add_argument("--pecos", help="a Python that has libpecos, to compare with")
    parser.add_argument("--rounds", type=int, default=3)
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = (a.folder or Path(name)).resolve()
        if not (folder / "queries.txt").exists():
            write_generated(folder, a.labels, a.queries)
        _ours(folder)  # compiles, and fills the page cache
        if a.pecos:
            XLinear.load(folder / "model" / "ranker").save(folder / "pecos", pecos=True)
        rounds: list[dict[str, dict[str, Any]]] = []
        for _ in range(a.rounds):
            ours = _ours(folder)
            peers = {form.lower(): _theirs(a.pecos, folder, form, ours["settings"]) for form in _FORMS if a.pecos}
            rounds.append({"xmc_tf": ours, **peers})
    best = {side: [one.pop("best") for one in (run[side] for run in rounds)][-1] for side in rounds[0]}
    same = {
        side: sum(one == other for one, other in zip(best["xmc_tf"], labels, strict=True)) / a.queries
        for side, labels in best.items()
    }
    found = {
        side: {
            key: (max if key.endswith("per_s") else min)(run[side][key] for run in rounds)
            for key in rounds[0][side]
            if key != "settings"
        }
        for side in rounds[0]
    }
    print(json.dumps({
        "figure": "instant_start", "labels": a.labels, "load": os.getloadavg()[0], **found, "same_best": same,
    }))  # fmt: skip


def _ours(folder: Path) -> dict[str, Any]:
    """Return the figures of a process, and the memory that another adds beside it."""
    one = _started(folder)
    found: dict[str, Any] = json.loads(one.stdout.readline())
    second = _started(folder)
    other = json.loads(second.stdout.readline())
    one.stdin.write("\n")
    one.stdin.flush()
    both, weights = int(one.stdout.readline()) + other["memory"], found["weights"]
    for process in (one, second):
        process.communicate("")
    found["second_adds"] = round((both - found["memory"]) / weights, 3)
    return {**found, "memory": round(found["memory"] / weights, 3)}


def _started(folder: Path) -> Any:
    command = [sys.executable, str(_SIDE), str(folder), repr(time.time())]
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, **pipes, text=True, env=environment)


def _theirs(python: str, folder: Path, form: str, settings: list[str]) -> dict[str, Any]:
    command = [python, str(_SIDE.with_name("peer_instant_start.py")), str(folder), form, *settings]
    environment = {**os.environ, "PYTHONPATH": ""}
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    figures: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return figures


if __name__ == "__main__":
    main()
