"""A small corpus on disk, and functions that run command lines on it."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from tests.linear.cases import dense_rows, random_chain, sparse_rows
from xmc_tf.data import save_matrix
from xmc_tf.linear import predict, train

TOPICS = ["library", "kitchen", "harbour", "forest", "theatre", "station"]


def write_corpus(folder: Path, documents=90):
    """Write texts on six topics, features, labels, names and a tree; each label belongs to one topic."""
    rng = np.random.default_rng(0)
    topics = rng.integers(0, 6, documents)
    words = [f"word{i}" for i in range(40)]
    texts = [" ".join([*rng.choice(words, 8), *[TOPICS[topic]] * 3, f"{TOPICS[topic]}s"]) for topic in topics]
    (folder / "X.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    (folder / "labels.txt").write_text("".join(f"{name} {i}\n" for i in (1, 2) for name in TOPICS), encoding="utf-8")
    Y = np.zeros((documents, 12), np.float32)
    Y[np.arange(documents), topics] = 1
    Y[np.arange(documents), 6 + topics] = rng.random(documents) < 0.5
    save_matrix(folder / "Y.npz", csr_matrix(Y))
    X = sparse_rows(documents).toarray()
    X[np.arange(documents), topics] += 2
    save_matrix(folder / "X.npz", csr_matrix(X))
    save_matrix(folder / "E.npy", dense_rows(documents))
    save_matrix(folder / "C.npz", random_chain(12, [5])[-1])
    R = csr_matrix(Y * rng.uniform(0.5, 2, Y.shape).astype(np.float32))
    save_matrix(folder / "R.npz", R)
    return folder


def run_train(*flags):
    train.main([str(flag) for flag in flags])


def run_predict(*flags):
    predict.main([str(flag) for flag in flags])


def shell(verb, *flags):
    """Run a command line in a new process; return exit code, standard output and standard error."""
    command = [sys.executable, "-m", f"xmc_tf.linear.{verb}", *map(str, flags)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout, done.stderr


def facts(model):
    return json.loads((model / "params.json").read_text(encoding="utf-8"))
