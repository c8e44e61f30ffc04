"""A model of ours trained on texts with given TF-IDF features: ``language_ours.py DATA TFIDF THREADS OUT EXPORTED``.

TFIDF is a JSON object of parameters. XR-Linear is trained with ``effort="balanced"``, and with label names where
DATA has labels.txt. Writes the best 20 labels of the test documents to OUT, and prints one JSON line. Prediction is on
one thread. Of at most EXPORTED test documents, the answers of the exported SavedModel are compared with these.
"""

import json
import os
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.sides.corpora import read_corpus
from benchmarks.sides.field_side import ONE, TOPK, own_peak_mb
from xmc_tf.data import save_matrix
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.params import TfidfParams, XRLinearParams

ANSWERS = 10  # labels of a text that are compared with the SavedModel's


def main() -> None:
    data, features, threads, out, exported = sys.argv[1:]
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
        "language": model.tfidf.params.language, **_exported(model, texts["tst"][: int(exported)]),
    }))  # fmt: skip


def _exported(model: XRLinear, texts: list[str]) -> dict[str, Any]:
    """Compare the answers of the SavedModel with the model's."""
    if not texts:
        return {}
    from xmc_tf.serving.local import LocalModel

    with TemporaryDirectory() as folder:
        path = Path(folder) / "1"
        model.export(path, only_topk=ANSWERS)
        theirs = LocalModel(path).predict(texts).tocsr()
    ours = model.predict(texts, only_topk=ANSWERS, threads=1).tocsr()
    pairs = [(ours[row], theirs[row]) for row in range(len(texts))]
    other = sum(set(a.indices) != set(b.indices) for a, b in pairs)
    # By rank: two labels with nearly the same score may change places.
    largest = max(float(np.abs(np.sort(a.data) - np.sort(b.data)).max(initial=0)) for a, b in pairs)
    return {
        "saved_model_texts": len(texts), "saved_model_other_labels": other,
        "saved_model_score_difference": largest,
    }  # fmt: skip


if __name__ == "__main__":
    main()
