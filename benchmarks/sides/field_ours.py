"""Predictions of a model of ours on given documents: ``field_ours.py MODEL DATA OUT``, one JSON line out.

Writes the best 20 labels of the test documents to OUT. The TF-IDF features of a document are given, and its text where
the model uses label names or an encoder, on one thread. With label names, the features are the model's own: names are
documents, so that the vocabulary has their words too.
"""

import json
import sys
import time

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.data import TextFile, load_features, load_matrix, save_matrix
from xmc_tf.metrics import as_truth, mark_hits, top_labels
from xmc_tf.models.loading import load
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.rankers.ensemble import trees_of

TOPK, BEAM, ONE = 20, 10, 300


def main() -> None:
    folder, data, out = sys.argv[1:4]
    model = load(folder)
    X, texts = load_features([f"{data}/X.tst.npz"]), list(TextFile(f"{data}/X.tst.txt").lines())
    linear = isinstance(model, XRLinear)
    named = linear and model.evidence is not None and model.evidence.names is not None
    if named:
        X = model.features(texts, 1)

    def predict(rows, **decisions):
        if not linear:
            return model.predict(texts[rows], beam_size=BEAM, only_topk=TOPK, threads=1, **decisions)
        given = X.rows(rows)
        known = {"X": given} if named else {}
        documents = texts[rows] if named else given
        return model.predict(documents, beam_size=BEAM, only_topk=TOPK, threads=1, **known, **decisions)

    predict(slice(0, 10))
    one = []
    for i in range(min(ONE, X.nr_rows)):
        start = time.perf_counter()
        predict(slice(i, i + 1))
        one.append(time.perf_counter() - start)
    start = time.perf_counter()
    found = predict(slice(0, X.nr_rows))
    batch_s = time.perf_counter() - start
    save_matrix(out, found)
    figures = {
        "batch_ms_per_text": round(1000 * batch_s / X.nr_rows, 3), "one_p50_ms": round(1000 * float(np.median(one)), 3),
        "trees": len(trees_of(model.ranker)), "weights": model.ranker.nr_weights,
    }  # fmt: skip
    if model.evidence:
        truth = as_truth(load_matrix(f"{data}/Y.tst.npz").tocsr())
        try:
            top = top_labels(predict(slice(0, X.nr_rows), min_precision=0.8), TOPK)
        except InputError:  # the held-out documents do not allow the promise
            top = np.full((X.nr_rows, 1), -1)
        right, returned = int(mark_hits(truth, top).sum()), int((top >= 0).sum())
        figures["P/R at 0.8"] = [round(100 * right / max(returned, 1), 2), round(100 * right / truth.nnz, 2)]
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
