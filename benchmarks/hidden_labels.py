"""Labels without training documents: how many are found by their names.

    python -m benchmarks.hidden_labels --data DIR [--encoder DIR] [--held-out 0.1] [--seed 0]

DATA holds X.trn.txt, X.tst.txt, Y.trn.npz, Y.tst.npz and labels.txt. A tenth of the labels, chosen by ``--seed``, are
removed from the labels of the training documents; their names stay. With ``--encoder``, two models with this encoder
are measured too: frozen and fine-tuned. With ``--held-out 0.1``, a tenth of the training documents takes the place of
the test documents: settings are chosen so.

Prints for each model: the share of the hidden labels of the test documents that are among the 10 best of all labels;
for hidden labels among the 10 best, the mean probability and the share that is right; P@1, P@3 and P@5 of all labels,
with and without hidden ones in the lists; and P@k of the other labels.
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, diags

from benchmarks.sides.corpora import read_corpus
from xmc_tf.metrics import evaluate, format_table
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.params.pools import FUSED_LABELS

SHARE = 0.1
_KS = (1, 3, 5)
_MOST = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--encoder", type=Path, help="an encoder's folder")
    parser.add_argument("--held-out", type=float, default=0.0, help="share of the training documents to test on")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of hidden labels and held-out documents")
    parser.add_argument("--only", nargs="+", choices=list(_MODELS), help="measure these alone")
    a = parser.parse_args()
    texts, labels, names = _read(a.data, a.held_out, a.seed)
    hidden = np.random.default_rng([a.seed, 1]).permutation(len(names))[: int(SHARE * len(names))]
    visible = np.ones(len(names), np.float32)
    visible[hidden] = 0
    Y = csr_matrix(labels["trn"] @ diags(visible))
    Y.eliminate_zeros()
    results: dict[str, dict[str, Any]] = {}
    for name, train in _MODELS.items():
        if name not in (a.only or _MODELS) or (name != "names" and not a.encoder):
            continue
        begin = time.perf_counter()
        model = train(texts["trn"], Y, names, a.encoder)
        seconds = time.perf_counter() - begin
        results[name] = {**measured(model, texts["tst"], labels["tst"], hidden), "train_s": round(seconds, 1)}
    keys = list(next(iter(results.values())))
    print(format_table(["", *results], [[key, *(str(one[key]) for one in results.values())] for key in keys]))
    print(json.dumps({
        "figure": "hidden_labels", "data": a.data.name, "held_out": a.held_out, "seed": a.seed, "hidden": len(hidden),
        "results": results,
    }))  # fmt: skip


def measured(model: Any, texts: list[str], truth: csr_matrix, hidden: np.ndarray) -> dict[str, Any]:
    """Return the figures of a model, in percent."""
    nr_labels = truth.shape[1]
    is_hidden = np.zeros(nr_labels, bool)
    is_hidden[hidden] = True
    # One prediction with all candidates of the rankers, because encoding takes most of the time.
    every = model.predict(texts, only_topk=FUSED_LABELS)
    found, known = _best(every, np.ones(nr_labels, bool)), _best(every, ~is_hidden)
    rows = np.repeat(np.arange(found.shape[0]), np.diff(found.indptr))
    some = is_hidden[found.indices]
    right = np.asarray(truth[rows[some], found.indices[some]]).ravel() > 0
    nr_hidden = truth[:, hidden].nnz
    visible = diags((~is_hidden).astype(np.float32))
    of_others = csr_matrix(truth @ visible)
    of_others.eliminate_zeros()
    return {
        "hidden labels: R@10": _percent(right.sum() / nr_hidden),
        "hidden labels: their share of the 10 best": _percent(some.mean()),
        "hidden labels: mean probability": _percent(found.data[some].mean() if some.any() else 0.0),
        "hidden labels: share that is right": _percent(right.mean() if some.any() else 0.0),
        "all labels: P@1, 3, 5": _precision(truth, found),
        "all labels, hidden ones not predicted": _precision(truth, known),
        "other labels: P@1, 3, 5": _precision(of_others, _best(found, ~is_hidden)),
        "other labels, hidden ones not predicted": _precision(of_others, known),
    }


def _best(found: csr_matrix, wanted: np.ndarray) -> csr_matrix:
    """Return the best of some labels in predictions, in their order."""
    rows = np.repeat(np.arange(found.shape[0]), np.diff(found.indptr))
    kept = np.flatnonzero(wanted[found.indices])
    first = np.searchsorted(rows[kept], np.arange(found.shape[0]))
    kept = kept[np.arange(len(kept)) - first[rows[kept]] < _MOST]
    out = csr_matrix(found.shape, dtype=np.float32)
    out.data, out.indices = found.data[kept], found.indices[kept]
    out.indptr = np.searchsorted(rows[kept], np.arange(found.shape[0] + 1)).astype(found.indptr.dtype)
    return out


def _precision(truth: csr_matrix, found: csr_matrix) -> list[float]:
    measures = evaluate(truth, found, _KS)
    return [_percent(measures.at("P", k)) for k in _KS]


def _percent(share: float) -> float:
    return round(100 * float(share), 2)


def _linear(texts: list[str], Y: csr_matrix, names: list[str], _: Path) -> Any:
    return XRLinear.train(texts, Y, names=names)


def _encoder(texts: list[str], Y: csr_matrix, names: list[str], encoder: Path, fine_tuned: bool = False) -> Any:
    from xmc_tf.models.xtransformer import XTransformer
    from xmc_tf.params import MatcherParams, MatcherPredParams, XTransformerParams, XTransformerPredParams

    level = MatcherParams(model_shortcut=str(encoder.resolve()))
    params = XTransformerParams(matcher_params_chain=level, do_fine_tune=fine_tuned)
    reading = XTransformerPredParams(matcher_params_chain=MatcherPredParams(truncate_length=64))
    return XTransformer.train(texts, Y, names=names, params=params, pred_params=reading)


def _read(data: Path, held_out: float, seed: int) -> tuple[dict[str, list[str]], dict[str, csr_matrix], list[str]]:
    texts, labels = read_corpus(data, held_out, seed)
    names = (data / "labels.txt").read_text("utf-8").removesuffix("\n").split("\n")
    return texts, labels, names


_MODELS: dict[str, Callable[..., Any]] = {
    "names": _linear, "encoder": _encoder, "fine-tuned": partial(_encoder, fine_tuned=True),
}  # fmt: skip

if __name__ == "__main__":
    main()
