"""How often a model keeps the precision that it promises, over many random splits of a data set.

    python -m benchmarks.promises --data DIR [--splits 100] [--documents N] [--once] [--all-names]
    python -m benchmarks.promises --generated DOCUMENTS LABELS [--splits 100]

DIR holds X.trn.txt, X.tst.txt, Y.trn.npz, Y.tst.npz and labels.txt. In each split, XR-Linear with label names is
trained on random documents, of ``--documents`` of the whole set, and asked for labels of the others with each of the
promised precisions.
``--once`` chooses documents so that most labels have one: those of a random tenth of the labels may repeat.
``--all-names`` trains with the names of all labels, also of those without documents in the split.
``--generated`` makes documents whose labels have no names; half of them are trained on, so DOCUMENTS is the size of the
training.

Prints a JSON line: for each promise, the share of splits that kept it, the mean and the smallest precision of the new
documents, how many labels they got on average, and in which share of the splits it was refused. "kept_by_chance" is the
share of splits whose precision is less than the promise by no more than the sampling error of the test documents
themselves (1.645 deviations between documents).
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, vstack

from benchmarks.sides.corpora import generated_corpus, read_corpus
from xmc_tf.common.errors import InputError
from xmc_tf.metrics import measure
from xmc_tf.models.xr_linear import XRLinear

PROMISES = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_MOST_LABELS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument(
        "--generated", nargs=2, type=int, metavar=("DOCUMENTS", "LABELS"), help="generated documents instead of --data"
    )
    parser.add_argument("--splits", type=int, default=100)
    parser.add_argument("--documents", type=int, help="number of documents of each split (default: all)")
    parser.add_argument("--held-out", type=float, default=0.2, help="share of the documents that are new")
    parser.add_argument("--once", action="store_true", help="documents by which most labels have one document")
    parser.add_argument("--all-names", action="store_true", help="train with labels that have no documents, too")
    parser.add_argument("--effort", default="fast", help="of the training")
    a = parser.parse_args()
    if bool(a.data) == bool(a.generated):
        parser.error("give either --data or --generated")
    if a.generated:
        a.documents, a.held_out = 2 * a.generated[0], 0.5
    found = []
    for seed in range(a.splits):
        if a.generated or not seed:
            every, Y, names = _collection(a, seed)
        found.append(_split(every, Y, names, seed, a))
        print(f"split {seed + 1} of {a.splits}: {found[-1]}", file=sys.stderr, flush=True)
    print(json.dumps({
        "figure": "promises", "data": a.data.name if a.data else a.generated, "once": a.once,
        "all_names": a.all_names, "splits": len(found), "documents": a.documents,
        "P@1": round(float(np.mean([one["P@1"] for one in found])), 2),
        "promises": {str(promise): _summary([one[str(promise)] for one in found], promise) for promise in PROMISES},
    }))  # fmt: skip


def _collection(a: argparse.Namespace, seed: int) -> tuple[list[str], csr_matrix, list[str] | None]:
    """Return texts, labels, and names of the labels if there are any."""
    if a.generated:
        count, labels = a.generated
        texts, matrices = generated_corpus(2 * count, labels, seed)
        return texts["trn"], matrices["trn"], None
    texts, matrices = read_corpus(a.data)
    names = (a.data / "labels.txt").read_text("utf-8").splitlines()
    return texts["trn"] + texts["tst"], csr_matrix(vstack([matrices["trn"], matrices["tst"]])), names


def _split(
    texts: list[str], Y: csr_matrix, names: list[str] | None, seed: int, a: argparse.Namespace
) -> dict[str, Any]:
    """Return P@1 and, for each promise, hits and answers per new document; None where it is refused."""
    order = np.random.default_rng([seed, 7]).permutation(len(texts))
    order = (_once(order, Y, seed) if a.once else order)[: a.documents]
    cut = int(a.held_out * len(order))
    new, old = np.sort(order[:cut]), np.sort(order[cut:])
    known = np.flatnonzero(Y[old].getnnz(axis=0))  # nobody could know the others
    if a.all_names and names:
        known = np.arange(Y.shape[1])
    model = XRLinear.train(
        [texts[row] for row in old], Y[old][:, known], names=names and [names[label] for label in known],
        effort=a.effort, probabilities=True,
    )  # fmt: skip
    predicted = model.predict([texts[row] for row in new], only_topk=_MOST_LABELS)
    truth = Y[new][:, known].tocsr()
    precision, *_ = measure(truth, predicted, (1,))
    out: dict[str, Any] = {"P@1": round(100 * precision.at("P", 1), 2)}
    rows = np.repeat(np.arange(len(new)), np.diff(predicted.indptr))
    right = np.asarray(truth[rows, predicted.indices]).ravel() > 0
    assert model.evidence is not None
    for promise in PROMISES:
        try:
            threshold = model.evidence.fusion.curve.for_precision(promise)
            some = predicted.data >= getattr(threshold, "threshold", threshold)
        except InputError:
            out[str(promise)] = None
            continue
        hits, answers = (np.bincount(rows[which], minlength=len(new)) for which in (some & right, some))
        share = hits.sum() / max(answers.sum(), 1)
        error = np.sqrt(((hits - share * answers) ** 2).sum()) / max(answers.sum(), 1)
        out[str(promise)] = tuple(round(float(one), 4) for one in (share, error, answers.sum() / len(new)))
    return out


def _once(order: np.ndarray, Y: csr_matrix, seed: int) -> np.ndarray:
    """Return documents with labels of a random tenth, which may repeat, and others that no document before them has."""
    repeats = np.zeros(Y.shape[1], bool)
    repeats[np.random.default_rng([seed, 3]).permutation(Y.shape[1])[: Y.shape[1] // 10]] = True
    used, kept = np.zeros(Y.shape[1], bool), []
    for row in order.tolist():
        labels = Y.indices[Y.indptr[row] : Y.indptr[row + 1]]
        once = labels[~repeats[labels]]
        if len(once) < len(labels) and not used[once].any():
            used[once] = True
            kept.append(row)
    # The first documents are bound by fewer others than the last, so they have more labels. New ones are as all are.
    return np.random.default_rng([seed, 11]).permutation(kept)


def _summary(found: list[tuple[float, float, float] | None], promise: float) -> dict[str, float]:
    kept = [one for one in found if one is not None and one[2] > 0]
    if not kept:
        return {"refused": 1.0}
    share, error, answers = np.array(kept).T
    return {
        "kept": round(float(np.mean(share >= promise)), 3),
        "kept_by_chance": round(float(np.mean(share + 1.645 * error >= promise)), 3),
        "mean": round(float(share.mean()), 4), "least": round(float(share.min()), 4),
        "labels_per_document": round(float(answers.mean()), 3), "refused": round(1 - len(kept) / len(found), 3),
    }  # fmt: skip


if __name__ == "__main__":
    main()
