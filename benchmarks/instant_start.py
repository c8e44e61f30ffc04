"""The time to the first answer of a large linear model, its memory, and what a second process adds.

    python -m benchmarks.instant_start [--labels 800000] [--queries 5000] [--folder DIR] [--before DIR]
                                                [--pecos PYTHON]

Generates a model (``sides/generated_rankers.py``), and starts processes that load it and answer queries: with the
stored layout for search, without it, arranging the weights in memory, and by another version of the package. Files are
in the page cache. Prints one JSON line; for ``stored``, ``in_memory`` and ``before``:

``first_answer_s``   from the start of the process to the answer to one query of features (aim, stored: 1 s)
``text_answer_s``    (stored) to the answer to one text, with the vectorizer and the names of the labels
``..._cpu_s``        the processor's seconds of the same, which other programs disturb less
``memory``           memory of the process after all queries, with mapped files, over that of the weights (aim: 1.15)
``second_adds``      what a second process adds to that memory, over that of the weights (aim: 0.10)
``batch_per_s``      queries per processor second in a batch, best of three; ``single_per_s``: one at a time;
                     ``single_matrix_per_s``: so that each answer is a sparse matrix, as libpecos gives it

With ``--pecos``, a Python that has libpecos, it answers the same queries with the same model and settings, on one
thread, with its weights in chunks that are searched (its default) and hashed, in turns with ours; ``over_pecos`` has
our speeds over its (aims: 4 in a batch, 6 one at a time), ``same_best`` the share of equal best labels.

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
from typing import Any, NamedTuple

from benchmarks.sides.generated_rankers import write_generated
from xmc_tf.data import as_features, load_matrix
from xmc_tf.rankers.xlinear import XLinear

_SIDE = Path(__file__).parent / "sides" / "instant_start_side.py"
_PECOS_SIDE = _SIDE.with_name("peer_instant_start.py")
_REPOSITORY = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, default=800_000)
    parser.add_argument("--queries", type=int, default=5_000)
    parser.add_argument("--folder", type=Path, help="keep the generated model there, and use it again")
    parser.add_argument("--before", type=Path, help="a folder with another version of the package to compare with")
    parser.add_argument("--pecos", help="a Python that has libpecos, to compare with")
    parser.add_argument("--rounds", type=int, default=3, help="starts of the stored layout, of which the best counts")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = a.folder or Path(name)
        if not (folder / "queries.txt").exists():
            write_generated(folder, a.labels, a.queries)
        plain = Path(name) / "plain"
        shutil.copytree(folder / "model", plain, copy_function=lambda source, target: os.symlink(source, target))
        shutil.rmtree(plain / "ranker" / "search")
        stored = _Side(folder.resolve(), folder.resolve() / "model")
        stored.run("all")  # compiles, and fills the page cache
        sides = {"in_memory": _Side(folder.resolve(), plain)}
        if a.before:
            sides["before"] = _Side(folder.resolve(), plain, a.before)
        line: dict[str, Any] = {"stored": {**_with_another(stored), **_starts(stored, a.rounds)}}
        line |= {name: _with_another(side) for name, side in sides.items()}
        line["same"] = len({one.pop("digest") for one in line.values()}) == 1
        line["shell_s"] = _shell(folder)
        if a.pecos:
            line |= _against_pecos(a.pecos, folder.resolve(), stored, a.rounds)
    print(json.dumps({"figure": "instant_start", "labels": a.labels, "load": os.getloadavg()[0], **line}))


def _against_pecos(python: str, folder: Path, stored: "_Side", rounds: int) -> dict[str, Any]:
    """Return the figures of libpecos and ours over them: the best of some rounds, in which all sides take turns."""
    levels = XLinear.load(folder / "model" / "ranker").levels
    settings = [str(one.pred_params.only_topk) for one in (levels[-2], levels[-1])]
    found: dict[str, dict[str, Any]] = {}
    for _ in range(rounds):
        runs = {"xmc_tf": stored.run("all")}
        for form in ("BINARY_SEARCH_CHUNKED", "HASH_CHUNKED"):
            command = [python, str(_PECOS_SIDE), str(folder), form, *settings]
            environment = {**os.environ, "PYTHONPATH": ""}
            run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
            runs[form.lower()] = json.loads(run.stdout.splitlines()[-1])
        best = runs["hash_chunked"]["best"]
        for side, figures in runs.items():
            now = {name: figures[name] for name in ("batch_per_s", "single_matrix_per_s")}
            found[side] = {name: max(now[name], found.get(side, now)[name]) for name in now}
    ours = found.pop("xmc_tf")
    predicted = XLinear.load(folder / "model" / "ranker").predict(as_features(load_matrix(folder / "queries.npz")))
    return {
        "in_turns": {"xmc_tf": ours, **found},
        "over_pecos": {side: {name: round(ours[name] / one[name], 2) for name in ours} for side, one in found.items()},
        "same_best": round(float((predicted.indices[predicted.indptr[:-1]] == best).mean()), 4),
    }


class _Side(NamedTuple):
    """A model, and the package that reads it; None: this one."""

    folder: Path
    model: Path
    package: Path | None = None

    def start(self, what: str) -> Any:
        """Start a process, which waits after it has printed its figures."""
        command = [sys.executable, str(_SIDE), str(self.folder), str(self.model), what, repr(time.time())]
        environment = {**os.environ, "PYTHONPATH": str((self.package or _REPOSITORY).resolve())}
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=environment,
        )  # fmt: skip

    def run(self, what: str) -> dict[str, Any]:
        """Return the figures of a process."""
        process = self.start(what)
        out, _ = process.communicate("")
        found: dict[str, Any] = json.loads(out.splitlines()[0])
        return found


def _starts(side: _Side, rounds: int) -> dict[str, float]:
    """Return the shortest times to the first answer."""
    out = {}
    for name, what in (("first_answer", "first"), ("text_answer", "text")):
        runs = [side.run(what) for _ in range(rounds)]
        out |= {
            f"{name}_s": min(run["first_answer_s"] for run in runs),
            f"{name}_cpu_s": min(run["cpu_s"] for run in runs),
        }
    return out


def _with_another(side: _Side) -> dict[str, Any]:
    """Return the figures of a process, and the memory that another adds beside it."""
    process = side.start("all")
    found = json.loads(process.stdout.readline())
    second = side.start("all")
    other = json.loads(second.stdout.readline())
    both = other["pss"] + _asked(process)
    for one in (process, second):
        one.communicate("")
    weights = 8 * found["nr_weights"]
    return {
        "weights_mb": round(weights / 1e6),
        "first_answer_s": found["first_answer_s"],
        "first_answer_cpu_s": found["cpu_s"],
        "memory": round(found["pss"] / weights, 3),
        "second_adds": round((both - found["pss"]) / weights, 3),
        **{name: max(found[name], other[name]) for name in ("batch_per_s", "single_per_s", "single_matrix_per_s")},
        "digest": found["digest"],
    }


def _asked(process: Any) -> int:
    """Return the memory of a waiting process now."""
    process.stdin.write("\n")
    process.stdin.flush()
    return int(process.stdout.readline())


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
