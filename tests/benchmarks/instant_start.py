"""The time to the first answer of a large linear model, its memory, and what a second process adds.

    python -m tests.benchmarks.instant_start [--labels 800000] [--queries 5000] [--folder DIR]

Generates a model (``sides/generated_rankers.py``), and starts processes that load it and answer queries: with the
stored layout for search, and without it, arranging the weights in memory. Files are in the page cache. Prints one JSON
line; for ``stored`` and ``in_memory``:

``first_answer_s``   from the start of the process to the answer to one query of features (aim, stored: 1 s)
``text_answer_s``    to the answer to one text, with the vectorizer and the names of the labels
``memory``           memory of the process after all queries, with mapped files, over that of the weights (aim: 1.15)
``second_adds``      what a second process adds to that memory, over that of the weights (aim: 0.10)
``batch_per_s``      queries per second, in batches on one thread, best of three; ``single_per_s``: one at a time

``same``             all answers are the same, bit for bit
``shell_s``          ``xmc-tf predict -q TEXT`` from the shell, median of five (with the layout)
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks.sides.generated_rankers import write_generated

_SIDE = "tests.benchmarks.sides.instant_start_side"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, default=800_000)
    parser.add_argument("--queries", type=int, default=5_000)
    parser.add_argument("--folder", type=Path, help="keep the generated model there, and use it again")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = a.folder or Path(name)
        if not (folder / "queries.txt").exists():
            write_generated(folder, a.labels, a.queries)
        plain = Path(name) / "plain"
        shutil.copytree(folder / "model", plain, copy_function=os.link if a.folder is None else os.symlink)
        shutil.rmtree(plain / "ranker" / "search")
        _run(folder, folder / "model", "all")  # compiles, and fills the page cache
        line: dict[str, Any] = {
            "stored": _measured(folder, folder / "model"),
            "in_memory": _measured(folder, plain),
        }
        line["same"] = _answers(folder, folder / "model") == _answers(folder, plain)
        line["shell_s"] = _shell(folder)
    print(json.dumps({"figure": "instant_start", "labels": a.labels, "load": os.getloadavg()[0], **line}))


def _measured(folder: Path, model: Path) -> dict[str, float]:
    first = min(_run(folder, model, "first")["first_answer_s"] for _ in range(3))
    text = min(_run(folder, model, "text")["first_answer_s"] for _ in range(3))
    process = _start(folder, model, "all")
    found = json.loads(process.stdout.readline())
    alone = found["pss"]
    second = _start(folder, model, "all")
    other = json.loads(second.stdout.readline())
    both = other["pss"] + _asked(process)
    for one in (process, second):
        one.communicate("")
    weights = 8 * found["nr_weights"]
    return {
        "weights_mb": round(weights / 1e6),
        "first_answer_s": first,
        "text_answer_s": text,
        "memory": round(alone / weights, 3),
        "second_adds": round((both - alone) / weights, 3),
        **{name: max(found[name], other[name]) for name in ("batch_per_s", "single_per_s")},
    }


def _start(folder: Path, model: Path, what: str) -> Any:
    command = [sys.executable, "-m", _SIDE, str(folder), str(model), what, repr(time.time())]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _asked(process: Any) -> int:
    """Return the memory of a waiting process now."""
    process.stdin.write("\n")
    process.stdin.flush()
    return int(process.stdout.readline())


def _run(folder: Path, model: Path, what: str) -> dict[str, Any]:
    process = _start(folder, model, what)
    out, _ = process.communicate("")
    if process.returncode:
        raise SystemExit(f"the process failed: {process.args}")
    found: dict[str, Any] = json.loads(out.splitlines()[0])
    return found


def _answers(folder: Path, model: Path) -> str:
    return str(_run(folder, model, "all")["digest"])


def _shell(folder: Path) -> float:
    text = (folder / "queries.txt").read_text(encoding="utf-8").splitlines()[0]
    command = [sys.executable, "-m", "xmc_tf", "predict", "-m", str(folder / "model"), "-q", text]
    taken = []
    for _ in range(6):
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        taken.append(time.perf_counter() - start)
    return round(median(taken[1:]), 3)


if __name__ == "__main__":
    main()
