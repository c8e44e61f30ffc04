"""XR-Transformer end to end, from texts and labels to predictions, against libpecos on the same files.

    python -m benchmarks.xtransformer_vs_pecos --encoder MODEL --data DIR [--peer PYTHON]
        [--length 64] [--leaf 16] [--peer-steps N] [--only NAME …]
        [-- more flags of xmc_tf.train]

MODEL is a folder of weights that both sides load. Ours runs as its users run it, by the command line, without looking
at the test documents: rankers on the frozen encoder, the default recipe, the same with names of labels where DIR has
labels.txt, and PECOS's own settings. PECOS runs with those settings, frozen and fine-tuned. Prints a table, and one
JSON line: P@1, P@3, P@5 in percent, the seconds of each from files to predictions, and the documents a second of the
training steps alone.

``--peer-steps 20`` cuts PECOS's fine-tuning short, where its speed is wanted and not its precision.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import scipy.sparse as smat

from benchmarks.sides import matrices
from xmc_tf.metrics import format_table

_BATCH = 32
_STEP = re.compile(r"^(\d\d:\d\d:\d\d) I level (\d+), step (\d+) of ", re.MULTILINE)
_STEPS = 236  # of PECOS's, for each level; of ours with PECOS's settings
_PEERS_SETTINGS = (
    "--loss-function weighted-squared-hinge -ns tfn+man --bootstrap-method linear --max-active-matching-labels 500 "
    f"--learning-rate 1e-4 --batch-size {_BATCH} --max-steps {_STEPS}"
).split()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", required=True, type=Path, help="a folder of weights and tokenizer")
    parser.add_argument("--data", required=True, type=Path, help="X.trn.txt, X.tst.txt, Y.trn.npz, Y.tst.npz")
    parser.add_argument("--peer", help="a Python that has libpecos, scikit-learn and transformers")
    parser.add_argument("--length", type=int, default=64, help="tokens of a document that are read")
    parser.add_argument("--leaf", type=int, default=16)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=_STEPS, help="of fine-tuning, per level, with PECOS's settings")
    parser.add_argument("--peer-steps", type=int, help="of PECOS; as many as ours by default")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="run these alone")
    parser.add_argument("more", nargs="*", help="flags of xmc_tf.train for all of ours, after --")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="xmc-tf-bench-") as work:
        data = a.data
        results: dict[str, dict[str, Any]] = {}
        sides = {
            "ours: frozen encoder": ["--no-fine-tune"],
            "ours: defaults": [],
            "ours: PECOS's settings": [*_PEERS_SETTINGS[:-1], str(a.steps)],
        }
        if (data / "labels.txt").exists():
            sides["ours: defaults, names"] = ["--labels", str(data / "labels.txt")]
        for name, flags in sides.items():
            if a.only is None or name in a.only:
                results[name] = _ours(data, Path(work), a, [*flags, *a.more])
                print(f"{name}: {results[name]}", file=sys.stderr, flush=True)
        for name, fine_tune in {"peer: frozen encoder": 0, "peer: fine-tuned": 1}.items():
            if a.peer and (a.only is None or name in a.only):
                results[name] = _peer(data, a, fine_tune)
                print(f"{name}: {results[name]}", file=sys.stderr, flush=True)
    rows = [
        [name, *(f"{p:.2f}" for p in one["precision"]), f"{one['seconds']:.0f}", str(one["documents_per_s"] or "")]
        for name, one in results.items()
    ]
    print(format_table(["", "P@1", "P@3", "P@5", "seconds", "documents/s"], rows), file=sys.stderr)
    figure = {"figure": "xtransformer_vs_pecos", "data": a.data.name, "length": a.length, "leaf": a.leaf}
    print(json.dumps({**figure, "more": a.more, "results": results}))


def _ours(data: Path, work: Path, a: argparse.Namespace, flags: list[str]) -> dict[str, Any]:
    """Train and predict as a user does."""
    model, predicted = work / "model", work / "pred.npz"
    python = [sys.executable, "-m"]
    train = [*python, "xmc_tf.train", "-t", str(data / "X.trn.txt"), "-y", str(data / "Y.trn.npz"), "-m", str(model)]
    train += ["--model-shortcut", str(a.encoder.resolve()), "--truncate-length", str(a.length)]
    train += ["--long-texts", "truncate"]  # as PECOS does
    train += ["--max-leaf-size", str(a.leaf), "--threshold", "0.01", "--threads", str(a.threads), *flags]
    train += ["--logging-steps", "10"]
    predict = [*python, "xmc_tf.predict", "-t", str(data / "X.tst.txt"), "-m", str(model), "-o", str(predicted)]
    begin = time.perf_counter()
    speed = _documents_per_s(train)
    trained = time.perf_counter()
    subprocess.run([*predict, "-k", "10", "-b", "10"], check=True, stdout=sys.stderr)
    done = time.perf_counter()
    P = matrices.precision(smat.load_npz(predicted).tocsr(), matrices.labels(data, "tst"))
    shutil.rmtree(model)
    return {
        "precision": [P[0], P[2], P[4]],
        "train_s": round(trained - begin, 1),
        "predict_s": round(done - trained, 1),
        "seconds": round(done - begin, 1),
        "documents_per_s": speed,
    }


def _documents_per_s(train: list[str]) -> float | None:
    """Train, forward its output, and return the speed of the steps of all levels, read from it."""
    documents = seconds = 0.0
    last: dict[str, tuple[int, datetime]] = {}  # of each level
    with subprocess.Popen(train, stdout=sys.stderr, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr or ():
            sys.stderr.write(line)
            if found := _STEP.search(line):
                clock, level, step = datetime.strptime(found[1], "%H:%M:%S"), found[2], int(found[3])
                if level in last:
                    documents += (step - last[level][0]) * _BATCH
                    seconds += (clock - last[level][1]).seconds
                last[level] = (step, clock)
    if process.returncode:
        sys.exit(process.returncode)
    return round(documents / seconds, 1) if seconds else None


def _peer(data: Path, a: argparse.Namespace, fine_tune: int) -> dict[str, Any]:
    """The same on the other side; it has no vectorizer of its own, so its users' usual one makes the features."""
    script = Path(__file__).parent / "sides" / "peer_xtransformer.py"
    given = [
        str(data),
        str(a.encoder.resolve()),
        str(a.length),
        str(a.leaf),
        str(a.threads),
        str((a.peer_steps or a.steps) * fine_tune),
    ]
    environment = {**os.environ, "PYTHONPATH": "", "OMP_NUM_THREADS": str(a.threads)}
    run = subprocess.run([a.peer, str(script), *given], stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return json.loads(run.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
