"""Predictions of a model of ours on given features: ``field_ours.py MODEL FEATURES OUT``, one JSON line out.

Writes the best 20 labels of the test documents to OUT. The features of a document are given, on one thread.
"""

import json
import sys
import time

import numpy as np

from xmc_tf.data import load_features, save_matrix
from xmc_tf.models.xr_linear import XRLinear

TOPK, BEAM, ONE = 20, 10, 300


def main() -> None:
    folder, features, out = sys.argv[1:4]
    model = XRLinear.load(folder)
    X = load_features([f"{features}/X.tst.npz"])

    def predict(queries):
        return model.ranker.predict(queries, beam_size=BEAM, only_topk=TOPK, threads=1)

    predict(X.rows(slice(0, 10)))
    one = []
    for i in range(min(ONE, X.nr_rows)):
        query = X.rows(slice(i, i + 1))
        start = time.perf_counter()
        predict(query)
        one.append(time.perf_counter() - start)
    start = time.perf_counter()
    found = predict(X)
    batch_s = time.perf_counter() - start
    save_matrix(out, found)
    print(json.dumps({
        "batch_ms_per_text": round(1000 * batch_s / X.nr_rows, 3), "one_p50_ms": round(1000 * float(np.median(one)), 3),
        "trees": len(model.more_trees) + 1, "weights": model.ranker.nr_weights,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
