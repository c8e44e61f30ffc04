"""Appending documents against training on all of them: time and answers.

    python -m benchmarks.appending --data DIR [--share 0.01] [--steps 1] [--effort NAME] [--names] [--exact]

DATA holds X.trn.txt, X.tst.txt, Y.trn.npz, Y.tst.npz and, for --names, labels.txt. A model is trained on all training
documents but a share of them, chosen by ``--seed``; they are appended, in ``--steps`` equal parts; another model is
trained on all, with a vocabulary and a tree of its own. Times are those of loading the model, appending, and saving;
and of training and saving.

Prints P@1, P@3 and P@5 of the model before, of the one with the documents, and of the one trained on all; seconds of
the processors and by the clock; and one JSON line with the ratios: time of one step in percent of a training, and the
points of P@k by which the appended model is below the trained one.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.data import load_matrix, load_names
from xmc_tf.metrics import evaluate, format_table
from xmc_tf.models.xr_linear import XRLinear

_KS = (1, 3, 5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--share", type=float, default=0.01, help="share of the documents to append")
    parser.add_argument("--steps", type=int, default=1, help="number of parts they are appended in")
    parser.add_argument("--effort", help="of the trainings")
    parser.add_argument("--names", action="store_true", help="train with names of labels as evidence")
    parser.add_argument("--exact", action="store_true", help="also append by solving clusters again")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="of the choice of documents to append")
    a = parser.parse_args()
    texts, tests = _texts(a.data / "X.trn.txt"), _texts(a.data / "X.tst.txt")
    Y, truth = (csr_matrix(load_matrix(a.data / f"Y.{part}.npz")) for part in ("trn", "tst"))
    options: dict[str, Any] = {"effort": a.effort, "threads": a.threads, "keep_training_data": True}
    if a.names:
        options["names"] = load_names(a.data / "labels.txt")
    order = np.random.default_rng(a.seed).permutation(len(texts))
    cut = round(len(order) * (1 - a.share))
    old, steps = np.sort(order[:cut]), [np.sort(part) for part in np.array_split(order[cut:], a.steps)]
    _warm_up(texts[:300], Y[:300], options)
    rows: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="xmc-tf-appending-") as work:
        folder = Path(work)

        def train(chosen: np.ndarray, name: str) -> None:
            XRLinear.train([texts[row] for row in chosen], Y[chosen], **options).save(folder / name)

        def append(chosen: np.ndarray, before: str, name: str, exact: bool) -> None:
            model = XRLinear.load(folder / before)
            new = [texts[row] for row in chosen]
            model.with_documents(new, Y[chosen], exact=exact, threads=a.threads).save(folder / name)

        def measured(name: str, seconds: list[tuple[float, float]]) -> None:
            model = XRLinear.load(folder / name)
            measures = evaluate(truth, model.predict(tests, only_topk=_KS[-1], threads=a.threads), _KS)
            cpu, clock = np.mean(seconds, axis=0)
            rows[name] = {f"P@{k}": round(100 * measures.at("P", k), 2) for k in _KS}
            rows[name] |= {"cpu_s": round(float(cpu), 2), "clock_s": round(float(clock), 2)}

        measured("before", [_timed(lambda: train(old, "before"))])
        for name, exact in {"appended": False, **({"solved again": True} if a.exact else {})}.items():
            seconds = []
            for number, part in enumerate(steps):
                source = name if number else "before"
                seconds.append(
                    _timed(lambda part=part, source=source, name=name, exact=exact: append(part, source, name, exact))
                )
            measured(name, seconds)
        measured("trained on all", [_timed(lambda: train(np.arange(len(texts)), "trained on all"))])
    columns = list(rows["before"])
    print(format_table(["", *columns], [[name, *(str(row[key]) for key in columns)] for name, row in rows.items()]))
    full = rows["trained on all"]
    ratios = {
        name: {
            "cpu_percent": round(100 * row["cpu_s"] / full["cpu_s"], 1),
            "clock_percent": round(100 * row["clock_s"] / full["clock_s"], 1),
            **{f"points_lost_P@{k}": round(full[f"P@{k}"] - row[f"P@{k}"], 2) for k in _KS},
        }
        for name, row in rows.items()
        if name != "trained on all"
    }
    print(json.dumps({
        "figure": "appending", "data": a.data.name, "share": a.share, "steps": a.steps, "effort": a.effort,
        "names": a.names, "threads": a.threads, "load": round(os.getloadavg()[0], 1), "rows": rows, "ratios": ratios,
    }))  # fmt: skip


def _warm_up(texts: list[str], Y: csr_matrix, options: dict[str, Any]) -> None:
    """Compile all kernels, which is no part of what is compared."""
    model = XRLinear.train(texts, Y, **options)
    for exact in (False, True):
        model.with_documents(texts[:5], Y[:5], exact=exact).predict(texts[:5])


def _texts(path: Path) -> list[str]:
    return path.read_text("utf-8").removesuffix("\n").split("\n")


def _timed(work: Callable[[], None]) -> tuple[float, float]:
    """Return the seconds of all processors and by the clock."""
    cpu, clock = time.process_time(), time.monotonic()
    work()
    return time.process_time() - cpu, time.monotonic() - clock


if __name__ == "__main__":
    main()
