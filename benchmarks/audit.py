"""How many planted errors an audit of labels finds.

    python -m benchmarks.audit --data DIR [--share 0.03] [--seed 0] [--documents N] [--first 200]

DIR holds X.trn.txt, Y.trn.npz and labels.txt. A share of the labels is removed (from documents with two or more), and
as many random ones are planted, drawn by their frequency. XR-Linear is trained on these labels, and audits them.

Prints a JSON line: for missing and for wrong labels, the precision and the recall of the first findings by planted
errors. Real collections have real errors, so a finding that was not planted may be right too.
"""

import argparse
import json
import resource
import sys
import time
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.data import load_matrix
from xmc_tf.models.xr_linear import XRLinear


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--share", type=float, default=0.03, help="share of the labels to remove, and to plant")
    parser.add_argument("--seed", type=int, default=0, help="of the planting")
    parser.add_argument("--documents", type=int, help="number of documents (default: all)")
    parser.add_argument("--first", type=int, default=200, help="number of findings of each kind that are judged")
    parser.add_argument("--effort", default="fast", help="of the training")
    parser.add_argument(
        "--show", type=int, default=0, help="number of findings of each kind that were not planted to show"
    )
    a = parser.parse_args()
    texts = (a.data / "X.trn.txt").read_text("utf-8").removesuffix("\n").split("\n")
    truth, names = load_matrix(a.data / "Y.trn.npz").tocsr(), (a.data / "labels.txt").read_text("utf-8").splitlines()
    if a.documents:
        some = np.sort(np.random.default_rng(1).permutation(len(texts))[: a.documents])
        texts, truth = [texts[row] for row in some], truth[some]
    Y, removed, planted = plant(truth, a.share, a.seed)
    model = XRLinear.train(texts, Y, names=names, effort=a.effort, label_names=False)
    began = time.monotonic()
    audit = model.audit(texts, Y, most=max(a.first, 500))
    seconds = time.monotonic() - began
    result = {}
    for kind, errors in (("missing", removed), ("wrong", planted)):
        found = audit.of_kind(kind)
        hits = [(one.row, one.label) in errors for one in found]
        result[kind] = {
            "precision": {first: round(float(np.mean(hits[:first])), 3) for first in (50, 100, a.first)},
            "recall": round(sum(hits[: a.first]) / len(errors), 4),
        }
        shown = [one for one, hit in zip(found[: a.first], hits[: a.first], strict=True) if not hit][: a.show]
        for one in shown:
            others = [names[label] for label in Y[one.row].indices if label != one.label][:8]
            print(f"{kind} {names[one.label]!r}: {texts[one.row][:240]} | {others} | {one.why}", file=sys.stderr)
    print(json.dumps({
        "figure": "audit", "data": a.data.name, "documents": len(texts), "share": a.share, "seed": a.seed,
        "planted": len(planted), "first": a.first, **result, "aim": 0.6, "seconds": round(seconds, 1),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
    }))  # fmt: skip


def plant(truth: csr_matrix, share: float, seed: int) -> tuple[csr_matrix, set[tuple[int, int]], set[tuple[int, int]]]:
    """Return labels with errors, the labels that were removed, and random ones that were planted."""
    rng = np.random.default_rng([seed, 99])
    count, rows = int(share * truth.nnz), np.repeat(np.arange(truth.shape[0]), np.diff(truth.indptr))
    several = np.flatnonzero(np.diff(truth.indptr)[rows] > 1)
    out = rng.choice(several, count, replace=False)
    own = rows.astype(np.int64) * truth.shape[1] + truth.indices
    drawn = (
        rng.integers(0, truth.shape[0], 3 * count) * truth.shape[1]
        + truth.indices[rng.integers(0, truth.nnz, 3 * count)]
    )
    new = rng.choice(np.setdiff1d(drawn, own), count, replace=False)
    kept = np.sort(np.concatenate([np.delete(own, out), new]))
    cells = np.divmod(kept, truth.shape[1])
    Y = csr_matrix((np.ones(len(kept), np.float32), cells), shape=truth.shape)
    removed, planted = (
        set(zip(*(one.tolist() for one in np.divmod(keys, truth.shape[1])), strict=True)) for keys in (own[out], new)
    )
    return Y, removed, planted


if __name__ == "__main__":
    main()
