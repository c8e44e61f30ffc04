"""Differences of models trained by PECOS and xmc_tf on the same data, for each solver and tolerance.

    python -m benchmarks.interop.retrained_with_pecos --peer PYTHON [--tolerances 0.1 0.001]

PYTHON runs a venv that has libpecos. Both sides train on the same random features, labels and label tree, and predict
with ``noop``, so that scores are the linear models' own. Prints a row per solver and tolerance (``eps``; the primal
solver's is ``newton_eps``), and one JSON line; exit status 1 where the scores of a dual solver at the smallest
tolerance differ by more than ``--limit``.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from xmc_tf.data import as_features, save_matrix
from xmc_tf.metrics import format_table
from xmc_tf.params import RankerParams
from xmc_tf.rankers.fit import train_rankers
from xmc_tf.tree import save_chain
from xmc_tf.tree.kmeans import build_tree
from xmc_tf.tree.label_embeddings import label_embedding

SOLVERS = ("L2R_L2LOSS_SVC_DUAL", "L2R_L1LOSS_SVC_DUAL", "L2R_LR_DUAL", "L2R_L2LOSS_SVC_PRIMAL")
PROGRAM = """
import json, sys
import scipy.sparse as sp
from pecos.xmc.base import ClusterChain
from pecos.xmc.xlinear.model import XLinearModel
work = sys.argv[1]
X, Y = sp.load_npz(f"{work}/X.npz"), sp.load_npz(f"{work}/Y.npz").tocsc()
for name, level in json.loads(sys.argv[2]).items():
    params = XLinearModel.TrainParams.from_dict({"hlm_args": {"model_chain": level}}, recursive=True)
    model = XLinearModel.train(X, Y, C=ClusterChain.load(f"{work}/tree"), train_params=params)
    sp.save_npz(f"{work}/{name}.npz", model.predict(X, beam_size=99, only_topk=999, post_processor="noop").tocsr())
"""


def main() -> None:
    """Train on both sides and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, help="the Python of a venv that has libpecos")
    parser.add_argument("--tolerances", type=float, nargs="+", default=[0.1, 0.001])
    parser.add_argument(
        "--limit", type=float, default=0.01, help="largest difference of scores that counts as agreement"
    )
    a = parser.parse_args()
    # Without a bias: PECOS's logistic solver never trains its own. All weights are kept, and enough passes made.
    cases: dict[str, dict[str, Any]] = {
        f"{solver} {eps:g}": {
            "solver_type": solver, "eps": eps, "newton_eps": eps, "max_iter": 10_000, "bias": -1.0, "threshold": 0.0,
        }
        for solver in SOLVERS for eps in a.tolerances
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        X, Y = made_up()
        chain = build_tree(label_embedding("pifa", X, Y)).to_chain()
        save_matrix(work / "X.npz", X)
        save_matrix(work / "Y.npz", Y)
        save_chain(work / "tree", chain)
        command = [a.peer, "-c", PROGRAM, str(work), json.dumps(cases)]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": ""}, cwd="/")
        rows, figures = [], {}
        for name, level in cases.items():
            params = RankerParams.from_json({"hlm_args": {"model_chain": level}})
            model = train_rankers(as_features(X), Y, chain, params=params)
            ours = model.predict(as_features(X), beam_size=99, only_topk=999, post_processor="noop").toarray()
            theirs = sp.load_npz(work / f"{name}.npz").toarray()
            difference, best = np.abs(ours - theirs), np.mean(ours.argmax(1) == theirs.argmax(1))
            figures[name] = {"largest": float(difference.max()), "mean": float(difference.mean()), "same_best": best}
            solver, eps = name.split()
            rows.append(
                [solver, eps, *(f"{value:.2g}" for value in (difference.max(), difference.mean())), f"{best:.4f}"]
            )
    print(
        format_table(["solver", "tolerance", "largest difference", "mean difference", "same best label"], rows, left=1)
    )
    print(json.dumps({"interop": "retrained_with_pecos", "documents": X.shape[0], "labels": Y.shape[1], **figures}))
    smallest = f"{min(a.tolerances):g}"
    dual = [name for name in figures if name.split()[1] == smallest and "DUAL" in name]
    sys.exit(any(figures[name]["largest"] > a.limit for name in dual))


def made_up(documents: int = 2000, features: int = 300, labels: int = 200) -> tuple[sp.csr_matrix, sp.csc_matrix]:
    """Return random features of length 1, and three labels per document that depend on them."""
    random = np.random.default_rng(0)
    X = sp.random(documents, features, 0.05, "csr", np.float32, random_state=random)
    X = sp.csr_matrix(sp.diags(1 / np.maximum(sp.linalg.norm(X, axis=1), 1e-9)) @ X, dtype=np.float32)
    X.sort_indices()
    best = np.argsort(-(X @ random.standard_normal((features, labels))), axis=1)[:, :3]
    ones = np.ones(best.size, np.float32)
    return X, sp.csc_matrix(sp.csr_matrix((ones, best.ravel(), np.arange(0, best.size + 1, 3)), (documents, labels)))


if __name__ == "__main__":
    main()
