"""Windows against truncation on long texts: documents joined by fives, with the labels of all five.

    python -m benchmarks.long_texts --encoder MODEL --data DIR [--length 32] [--steps 300] [--joined 5]
        [--held-out] [--only truncate mean max] [-- more flags of xmc_tf.train]

The same documents, steps and seed for each way to read long texts.
``--held-out`` measures on a fifth of the training documents instead of the test set: choose settings with it.

Prints a table and one JSON line: P@1, P@3, P@5 in percent of the model, of its rankers and of its label head; seconds
of training and prediction.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as smat

from xmc_tf.data import TextFile
from xmc_tf.metrics import evaluate, format_table
from xmc_tf.models.xtransformer import XTransformer

_KS = (1, 3, 5)
_METHODS = {"model": None, "rankers": "concat-only", "head": "transformer-only"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", required=True, type=Path, help="a folder of weights and tokenizer")
    parser.add_argument("--data", required=True, type=Path, help="X.trn.txt, X.tst.txt, Y.trn.npz, Y.tst.npz")
    parser.add_argument("--joined", type=int, default=5, help="documents that are joined to one")
    parser.add_argument("--rounds", type=int, default=3, help="how often each training document is joined to others")
    parser.add_argument("--length", type=int, default=32, help="tokens of a window")
    parser.add_argument("--steps", type=int, default=300, help="steps of fine-tuning")
    parser.add_argument("--held-out", action="store_true", help="measure on a fifth of the training documents")
    parser.add_argument("--only", nargs="+", default=["truncate", "mean", "max"], metavar="NAME")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("more", nargs="*", help="flags of xmc_tf.train, after --")
    a = parser.parse_args()
    results: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="xmc-tf-bench-") as work:
        _join(a, Path(work))
        for name in a.only:
            results[name] = _measure(a, Path(work), name)
            print(f"{name}: {results[name]}", file=sys.stderr, flush=True)
    rows = [
        [name, *(f"{one[of][0]:.2f}" for of in _METHODS), f"{one['train_s']:.0f}", f"{one['predict_s']:.0f}"]
        for name, one in results.items()
    ]
    head = ["P@1", *_METHODS, "train s", "predict s"]
    print(format_table(head, rows), file=sys.stderr)
    figure = {"figure": "long_texts", "data": a.data.name, "joined": a.joined, "length": a.length, "steps": a.steps}
    print(json.dumps({**figure, "held_out": a.held_out, "more": a.more, "results": results}))


def _join(a: argparse.Namespace, to: Path) -> None:
    """Write the joined training and test documents."""
    texts = {name: list(TextFile(a.data / f"X.{name}.txt")) for name in ("trn", "tst")}
    labels = {name: smat.load_npz(a.data / f"Y.{name}.npz").tocsr() for name in ("trn", "tst")}
    if a.held_out:
        order = np.random.default_rng(1).permutation(len(texts["trn"]))
        parts = {"tst": order[: len(order) // 5], "trn": order[len(order) // 5 :]}
        texts = {name: [texts["trn"][row] for row in rows] for name, rows in parts.items()}
        labels = {name: labels["trn"][rows] for name, rows in parts.items()}
    for name, rounds in (("trn", a.rounds), ("tst", 1)):
        rng, count = np.random.default_rng(0), len(texts[name]) // a.joined
        chosen = np.concatenate(
            [rng.permutation(len(texts[name]))[: count * a.joined].reshape(count, a.joined) for _ in range(rounds)]
        )
        (to / f"X.{name}.txt").write_text(
            "".join(" ".join(texts[name][row] for row in rows) + "\n" for rows in chosen), encoding="utf-8"
        )
        of = smat.csr_matrix(
            (np.ones(chosen.size, np.float32), (np.repeat(np.arange(len(chosen)), a.joined), chosen.ravel())),
            shape=(len(chosen), len(texts[name])),
        )
        Y = (of @ labels[name]).tocsr().astype(np.float32)
        Y.data[:] = 1
        smat.save_npz(to / f"Y.{name}.npz", Y, compressed=False)


def _measure(a: argparse.Namespace, work: Path, long_texts: str) -> dict[str, Any]:
    """Train as a user does, and measure."""
    model = work / long_texts
    command = [sys.executable, "-m", "xmc_tf.train", "-t", work / "X.trn.txt", "-y", work / "Y.trn.npz", "-m", model]
    command += ["--model-shortcut", a.encoder.resolve(), "--truncate-length", a.length, "--long-texts", long_texts]
    command += ["--max-steps", a.steps, "--save-steps", 10_000, "--threads", a.threads, "--threshold", 0.01, *a.more]
    begin = time.perf_counter()
    subprocess.run([str(one) for one in command], check=True, stdout=sys.stderr)
    trained = time.perf_counter()
    loaded, texts = XTransformer.load(model), TextFile(work / "X.tst.txt")
    truth = smat.load_npz(work / "Y.tst.npz").tocsr()
    methods = _METHODS if (model / "head").exists() else {"model": None, "rankers": "concat-only"}
    found: dict[str, Any] = {name: [0.0] * len(_KS) for name in _METHODS}
    times = []
    for name, method in methods.items():
        start = time.perf_counter()
        predicted = loaded.predict(texts, only_topk=10, ensemble_method=method, threads=a.threads)
        times.append(time.perf_counter() - start)
        found[name] = [round(100 * evaluate(truth, predicted, ks=_KS).at("P", k), 2) for k in _KS]
    return {**found, "train_s": round(trained - begin, 1), "predict_s": round(min(times), 1)}


if __name__ == "__main__":
    main()
