"""A model of ours trained on texts with given TF-IDF features: ``language_ours.py DATA TFIDF THREADS OUT``, JSON out.

TFIDF is a JSON object of parameters. XR-Linear is trained with ``effort="balanced"``, and with label names where
DATA has labels.txt. Writes the best 20 labels of the test documents to OUT. Prediction is on one thread.
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np

from tests.benchmarks.sides.corpora import read_corpus
from tests.benchmarks.sides.field_side import ONE, TOPK, own_peak_mb
from xmc_tf.data import save_matrix
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.params import TfidfParams, XRLinearParams


def main() -> None:
    data, features, threads, out = sys.argv[1:]
    texts, labels = read_corpus(Path(data))
    listed = Path(data) / "labels.txt"
    names = listed.read_text("utf-8").splitlines() if listed.exists() else None
    params = XRLinearParams(tfidf=TfidfParams(**json.loads(features)))

    cpu_before, start = sum(os.times()[:2]), time.perf_counter()
    model = XRLinear.train(
        texts["trn"], labels["trn"], names=names, params=params, effort="balanced", label_names=names is not None,
        threads=int(threads),
    )  # fmt: skip
    train_s, train_cpu_s, peak_mb = time.perf_counter() - start, sum(os.times()[:2]) - cpu_before, own_peak_mb()

    def predict(some):
        return model.predict(some, only_topk=TOPK, threads=1)

    predict(texts["tst"][:10])
    one = []
    for text in texts["tst"][:ONE]:
        start = time.perf_counter()
        predict([text])
        one.append(time.perf_counter() - start)
    start = time.perf_counter()
    found = predict(texts["tst"])
    batch_s = time.perf_counter() - start
    save_matrix(out, found)
    print(json.dumps({
        "train_s": round(train_s, 2), "train_cpu_s": round(train_cpu_s, 2), "train_peak_mb": round(peak_mb),
        "batch_ms_per_text": round(1000 * batch_s / len(texts["tst"]), 3),
        "one_p50_ms": round(1000 * float(np.median(one)), 3), "features": model.tfidf.nr_features,
        "language": model.tfidf.params.language,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
