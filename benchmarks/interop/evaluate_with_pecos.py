"""Check that our measures and ensembles are PECOS's: same P@k and R@k, same lines, same ensembled scores.

Run by PECOS's Python, which needs nothing of ours; ours run in their own, on files, as a user would run them:

    PEER/bin/python benchmarks/interop/evaluate_with_pecos.py --ours .venv/bin/python
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse as smat
from pecos.utils import smat_util

ROOT = Path(__file__).resolve().parents[2]
WAYS = ("average", "rank_average", "sigmoid_average", "softmax_average", "round_robin")
TOPK = 10

ENSEMBLE = """
import sys
import scipy.sparse as smat
from xmc_tf.metrics import ensemble
way, out, *paths = sys.argv[1:]
smat.save_npz(out, ensemble(way, [smat.load_npz(path) for path in paths]), compressed=False)
"""


def random_prediction(rng: np.random.Generator, truth: smat.csr_matrix) -> smat.csr_matrix:
    """Return distinct positive scores for some true labels and many others; no row is empty."""
    noise = smat.random(*truth.shape, density=0.02, format="csr", random_state=rng)
    hits = truth.multiply(smat.random(*truth.shape, density=0.5, format="csr", random_state=rng)).tocsr()
    rows = np.arange(truth.shape[0])
    one = smat.csr_matrix((rng.random(len(rows)), (rows, rng.integers(0, truth.shape[1], len(rows)))), truth.shape)
    prediction = (noise + hits + one).tocsr().astype(np.float32)
    # PECOS's ensembles take rows that are sorted by score.
    return smat_util.sorted_csr(prediction, only_topk=30)


def main() -> None:
    """Compare random predictions and print one JSON line; exit code 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", default=str(ROOT / ".venv/bin/python"), help="the Python that has xmc_tf")
    parser.add_argument("--seed", type=int, default=0, help="for the random predictions")
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    truth = smat.random(2000, 600, density=0.008, format="csr", random_state=rng).astype(np.float32)
    predictions = [random_prediction(rng, truth) for _ in range(3)]
    # Its softmax fails on empty rows, so that one is only measured.
    holey = (smat.diags((rng.random(truth.shape[0]) < 0.9).astype(np.float32)) @ predictions[0]).tocsr()
    holey.eliminate_zeros()

    with tempfile.TemporaryDirectory() as folder:
        y, paths = f"{folder}/y.npz", [f"{folder}/p{i}.npz" for i in range(len(predictions))]
        smat.save_npz(y, truth, compressed=False)
        for path, prediction in zip(paths, predictions, strict=True):
            smat.save_npz(path, prediction, compressed=False)
        systems, worst_score = {f"{folder}/holey.npz": holey, **dict(zip(paths, predictions, strict=True))}, 0.0
        smat.save_npz(f"{folder}/holey.npz", holey, compressed=False)
        for way in WAYS:
            theirs = getattr(smat_util.CsrEnsembler, way)(*[p.copy() for p in predictions])
            out = f"{folder}/{way}.npz"
            subprocess.run([args.ours, "-c", ENSEMBLE, way, out, *paths], cwd=ROOT, check=True)
            ours = smat.load_npz(out)
            if ours.nnz != theirs.nnz:
                sys.exit(f"{way}: {ours.nnz} entries, PECOS has {theirs.nnz}")
            worst_score = max(worst_score, float(abs(ours - theirs).max()))
            systems[out] = theirs

        command = [args.ours, "-m", "xmc_tf.evaluate", "-y", y, "-p", *systems, "-k", str(TOPK), "--json"]
        ran = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
        measured = json.loads(ran.stdout)["systems"]
        peers = [smat_util.Metrics.generate(truth, theirs, topk=TOPK) for theirs in systems.values()]

        for path, peer in zip(systems, peers, strict=True):
            command = [args.ours, "-m", "xmc_tf.linear.evaluate", "-y", y, "-p", path, "-k", str(TOPK)]
            printed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True).stdout
            # Ensembles are theirs here and ours there; their scores differ in the last digits.
            if printed != f"==== evaluation results ====\n{peer}\n" and path in (*paths, f"{folder}/holey.npz"):
                sys.exit(f"{path}: ours prints\n{printed}PECOS prints\n{peer}")

    worst_measure = max(
        abs(system[f"{name}@{k + 1}"] - values[k])
        for system, peer in zip(measured, peers, strict=True)
        for name, values in (("P", peer.prec), ("R", peer.recall))
        for k in range(TOPK)
    )
    print(
        json.dumps(
            {
                "systems": [system["name"] for system in measured],
                "largest_difference_of_measures": worst_measure,
                "largest_difference_of_ensembled_scores": worst_score,
            }
        )
    )
    # PECOS adds float32 scores up, we float64: the order of nearly equal scores may turn.
    if worst_measure > 1e-4 or worst_score > 1e-5:
        sys.exit("ours and PECOS's differ")


if __name__ == "__main__":
    main()
