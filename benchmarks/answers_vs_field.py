"""Our efforts against Omikuji-Bonsai, Omikuji-Parabel and libpecos: answers, time and memory, on the same features.

    python -m benchmarks.answers_vs_field --data DIR --field PYTHON [--threads 2] [--only NAME …]

DATA holds X.trn.txt, X.tst.txt, Y.trn.npz, Y.tst.npz and, for the rows with names, labels.txt. PYTHON has
omikuji 0.5.2 and libpecos 1.2.8: ``pip install
omikuji==0.5.2 "numpy<2" "scipy<1.14" "scikit-learn<1.6"``, then ``pip install --no-deps libpecos==1.2.8``. TF-IDF
features are computed once, by our defaults, and given to all; our trainings with names of labels as evidence read the
texts instead and compute the same features, which their time contains. With ``--encoder DIR``, rows with a frozen
encoder, read up to 64 tokens, are added. With ``--held-out 0.1``, a tenth of the training
documents, chosen by ``--seed``, takes the place of the test documents: settings are chosen so.

Prints a table, and one JSON line: P@1, P@3, P@5, nDCG@10, macro-averaged F1@5 over documents, PSP@1, PSP@3 and PSP@5 in
percent; the expected calibration error of the scores of the best 5 labels; where there are probabilities, precision
and recall of the labels that ``min_precision=0.8`` returns; seconds of the training by the clock and of
all processors (ours: the whole command with its start; theirs: the training call) and peak memory of its process;
milliseconds per text in a batch and one at a time, on one thread.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as smat

from benchmarks.sides.corpora import read_corpus
from xmc_tf.data import load_matrix, save_matrix
from xmc_tf.features import Tfidf
from xmc_tf.metrics import as_truth, format_table, inverse_propensity, mark_hits, measure, top_labels

_SIDES = Path(__file__).parent / "sides"
_ROOT = Path(__file__).parents[1]
OURS = {
    "ours: defaults": [],
    "ours: fast": ["--effort", "fast"],
    "ours: balanced": ["--effort", "balanced"],
    "ours: best": ["--effort", "best"],
}
PROBABLE = {f"{name}, probabilities": flags for name, flags in OURS.items()}
NAMED = {f"{name}, names": flags for name, flags in OURS.items() if flags}
WITH_ENCODER = {"ours: frozen encoder": [], "ours: frozen encoder, balanced": ["--effort", "balanced"]}
FIELD = {"Omikuji-Bonsai": "omikuji-bonsai", "Omikuji-Parabel": "omikuji-parabel", "libpecos": "pecos"}
_BINS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--field", help="a Python that has omikuji and libpecos; without it, only ours are run")
    parser.add_argument("--encoder", type=Path, help="an encoder's folder, for rows with it")
    parser.add_argument("--threads", type=int, default=2, help="for training (prediction: one)")
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help=f"run these alone: {', '.join([*OURS, *PROBABLE, *NAMED, *FIELD])}"
    )
    parser.add_argument("--held-out", type=float, default=0.0, help="share of the training documents to test on")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of held-out documents")
    a = parser.parse_args()
    ours = {name: _linear(flags) for name, flags in OURS.items()}
    ours |= {name: _linear([*flags, "--probabilities", "true"]) for name, flags in PROBABLE.items()}
    if (a.data / "labels.txt").exists():
        ours |= {name: [*_linear(flags, names=True)] for name, flags in NAMED.items()}
    if a.encoder:
        for name, flags in WITH_ENCODER.items():
            for names in (False, True):
                ours[f"{name}, names" if names else name] = _with_encoder(a.encoder.resolve(), flags, names)
    results: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="xmc-tf-field-") as work:
        folder = Path(work)
        if (a.data / "labels.txt").exists():
            shutil.copy(a.data / "labels.txt", folder)
        Y, truth = _write_data(*read_corpus(a.data, a.held_out, a.seed), folder)
        for name in [*ours, *(FIELD if a.field else [])]:
            if a.only and name not in a.only:
                continue
            print(f"{name} …", file=sys.stderr, flush=True)
            out = folder / "predicted.npz"
            figures = (
                _ours(ours[name], folder, a.threads, out)
                if name in ours
                else _theirs(a.field, FIELD[name], folder, a.threads, out)
            )
            results[name] = {**answers(truth, load_matrix(out).tocsr(), Y), **figures}
            print(f"{name}: {json.dumps(results[name])}", file=sys.stderr, flush=True)
    columns = list(dict.fromkeys(key for figures in results.values() for key in figures))
    rows = [[name, *(str(figures.get(key, "")) for key in columns)] for name, figures in results.items()]
    print(format_table(["", *columns], rows))
    bonsai = results.get("Omikuji-Bonsai")
    ratios = {
        name: {key: round(bonsai[key] / figures[key], 2) for key in ("train_s", "train_cpu_s", "train_peak_mb")}
        for name, figures in results.items()
        if bonsai and name in ours
    }
    print(json.dumps({
        "figure": "answers_vs_field", "data": a.data.name, "held_out": a.held_out,
        "threads": a.threads, "results": results, "bonsai_over_ours": ratios,
    }))  # fmt: skip


def _write_data(
    texts: dict[str, list[str]], labels: dict[str, smat.csr_matrix], folder: Path
) -> tuple[smat.csr_matrix, smat.csr_matrix]:
    """Write labels and features of training and test documents; return their labels."""
    tfidf = Tfidf.fit(texts["trn"])
    for part in ("trn", "tst"):
        (folder / f"X.{part}.txt").write_text("".join(f"{text}\n" for text in texts[part]), "utf-8")
        save_matrix(folder / f"X.{part}.npz", tfidf.transform(texts[part]))
        save_matrix(folder / f"Y.{part}.npz", labels[part])
    return labels["trn"], labels["tst"]


def _linear(flags: list[str], *, names: bool = False) -> list[str]:
    """Return the command, in the folder of the data, that trains linear rankers."""
    read = ["-t", "X.trn.txt", "--labels", "labels.txt", "--label-names", "true"] if names else ["-x", "X.trn.npz"]
    return ["xmc_tf.linear.train", *read, *flags]


def _with_encoder(encoder: Path, flags: list[str], names: bool) -> list[str]:
    """Return the command that trains rankers on TF-IDF features and the embeddings of a frozen encoder."""
    read = ["-t", "X.trn.txt", "--no-fine-tune", "--model-shortcut", str(encoder), "--truncate-length", "64"]
    return ["xmc_tf.train", *read, *(["--labels", "labels.txt"] if names else []), *flags]


def _ours(command: list[str], folder: Path, threads: int, out: Path) -> dict[str, Any]:
    """Train by the command and predict, each in a process of its own."""
    model = folder / "model"
    measured = [sys.executable, str(_SIDES / "measured.py"), str(folder), sys.executable, "-m", *command]
    measured += ["-y", "Y.trn.npz", "-m", "model", "-n", str(threads), "--verbose-level", "0"]
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    subprocess.run(measured, cwd=folder, env={**os.environ, "PYTHONPATH": path}, check=True)
    used = json.loads((folder / "0.json").read_text())
    side = [sys.executable, "-m", "benchmarks.sides.field_ours", model, folder, out]
    run = subprocess.run(list(map(str, side)), cwd=_ROOT, stdout=subprocess.PIPE, text=True, check=True)
    times = {"train_s": used["seconds"], "train_cpu_s": used["cpu_s"], "train_peak_mb": round(used["peak_mb"])}
    return {**times, **json.loads(run.stdout.splitlines()[-1])}


def _theirs(python: str, tool: str, folder: Path, threads: int, out: Path) -> dict[str, Any]:
    command = [python, _SIDES / "field_side.py", tool, folder, folder, threads, out]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    run = subprocess.run(list(map(str, command)), **pipes, text=True, check=True)
    return json.loads(run.stdout.splitlines()[-1])


def answers(truth: smat.csr_matrix, predicted: smat.csr_matrix, Y: smat.csr_matrix) -> dict[str, Any]:
    """Return the measures of a prediction, in percent."""
    frequency = np.bincount(Y.indices, minlength=Y.shape[1])
    of_all, *_ = measure(truth, predicted, (1, 3, 5, 10), gains=inverse_propensity(frequency, Y.shape[0]))
    true, top = as_truth(truth), top_labels(predicted, 5)
    hits = mark_hits(true, top).sum(axis=1)
    sizes = np.diff(true.indptr)
    f1 = 2 * hits / np.maximum(sizes + (top >= 0).sum(axis=1), 1)

    def percent(name: str, *ks: int) -> Any:
        found = [round(100 * of_all.at(name, k), 2) for k in ks]
        return found[0] if len(found) == 1 else found

    return {
        "P@1/3/5": percent("P", 1, 3, 5), "nDCG@10": percent("nDCG", 10), "F1@5": round(100 * float(f1.mean()), 2),
        "PSP@1/3/5": percent("PSP", 1, 3, 5), "ECE": round(calibration_error(truth, predicted), 4),
    }  # fmt: skip


def calibration_error(truth: smat.csr_matrix, predicted: smat.csr_matrix, k: int = 5) -> float:
    """Return the expected calibration error of the scores of the best ``k`` labels, in 20 bins of equal width.

    It is the mean distance between the scores of a bin and the share of its labels that are true, weighted by the
    bins' sizes. Scores above 1 count as 1.
    """
    top = top_labels(predicted, k)
    hits, there = mark_hits(as_truth(truth), top), top >= 0
    rows = np.repeat(np.arange(top.shape[0]), top.shape[1])[there.ravel()]
    scores = np.clip(np.asarray(predicted[rows, top[there]]).ravel(), 0, 1)
    right = hits[there].astype(float)
    bins = np.minimum((scores * _BINS).astype(int), _BINS - 1)
    gaps = np.bincount(bins, scores - right, _BINS)
    return float(np.abs(gaps).sum() / max(len(scores), 1))


if __name__ == "__main__":
    main()
