"""A tool of the field on given features: ``field_side.py TOOL DATA FEATURES THREADS OUT``, run by a Python that has it.

TOOL is omikuji-bonsai or omikuji-parabel (three trees each, their defaults), or pecos (XR-Linear, one tree of 16 splits
with at most 100 labels per leaf). Writes the best 20 labels of the test documents to OUT.npz, and prints one JSON line.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.sparse as smat

TOPK, BEAM, ONE = 20, 10, 300


def load(folder, name):
    matrix = smat.load_npz(Path(folder) / f"{name}.npz").tocsr().astype(np.float32)
    matrix.sort_indices()
    return matrix


def own_peak_mb():
    """Return the peak memory of this process; the system's count of resources begins with its parent's."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def omikuji(tool, X, Y, threads):
    """Return a function that predicts one document, and the seconds of the training."""
    import omikuji

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "train.txt")
        rows = [i for i in range(X.shape[0]) if X.indptr[i + 1] > X.indptr[i] and Y.indptr[i + 1] > Y.indptr[i]]
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"{len(rows)} {X.shape[1]} {Y.shape[1]}\n")
            for i in rows:
                a, b = X.indptr[i], X.indptr[i + 1]
                labels = ",".join(map(str, Y.indices[Y.indptr[i] : Y.indptr[i + 1]]))
                pairs = zip(X.indices[a:b], X.data[a:b], strict=True)
                file.write(labels + " " + " ".join(f"{j}:{value:.6g}" for j, value in pairs) + "\n")
        params = omikuji.Model.default_hyper_param()
        if tool == "omikuji-bonsai":
            params.cluster_balanced, params.cluster_k, params.max_depth = False, 100, 3
        start = time.perf_counter()
        model = omikuji.Model.train_on_data(path, params, threads)
        took = time.perf_counter() - start

    def predict(features, values):
        return model.predict(list(zip(features.tolist(), values.tolist(), strict=True)), BEAM, TOPK)

    return lambda Xt: [predict(row.indices, row.data) for row in Xt], took


def pecos(X, Y, threads):
    from pecos.xmc import Indexer, LabelEmbeddingFactory
    from pecos.xmc.base import HierarchicalKMeans
    from pecos.xmc.xlinear.model import XLinearModel

    start = time.perf_counter()
    shape = HierarchicalKMeans.TrainParams(nr_splits=16, max_leaf_size=100, threads=threads)
    chain = Indexer.gen(LabelEmbeddingFactory.create(Y, X, method="pifa"), train_params=shape)
    model = XLinearModel.train(X, Y.tocsc(), C=chain, threshold=0.1, threads=threads)
    took = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder)
        model = XLinearModel.load(folder, is_predict_only=True)

    def predict(Xt):
        found = model.predict(Xt, beam_size=BEAM, only_topk=TOPK, threads=1)
        return [list(zip(row.indices.tolist(), row.data.tolist(), strict=True)) for row in found]

    return predict, took


def main():
    tool, data, features, threads, out = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5]
    X, Xt, Y = load(features, "X.trn"), load(features, "X.tst"), load(data, "Y.trn")
    cpu_before = sum(os.times()[:2])
    predict, train_s = pecos(X, Y, threads) if tool == "pecos" else omikuji(tool, X, Y, threads)
    peak_mb, cpu_s = own_peak_mb(), sum(os.times()[:2]) - cpu_before
    one = []
    for i in range(min(ONE, Xt.shape[0])):
        start = time.perf_counter()
        predict(Xt[i])
        one.append(time.perf_counter() - start)
    start = time.perf_counter()
    answers = predict(Xt)
    batch_s = time.perf_counter() - start
    counts = [len(answer) for answer in answers]
    pairs = [pair for answer in answers for pair in answer]
    found = smat.csr_matrix(
        (
            np.array([score for _, score in pairs], np.float32),
            np.array([label for label, _ in pairs], np.int32),
            np.concatenate([[0], np.cumsum(counts)]),
        ),
        shape=(Xt.shape[0], Y.shape[1]),
    )
    smat.save_npz(out, found)
    print(json.dumps({
        "train_s": round(train_s, 2), "train_cpu_s": round(cpu_s, 2), "train_peak_mb": round(peak_mb),
        "batch_ms_per_text": round(1000 * batch_s / Xt.shape[0], 3),
        "one_p50_ms": round(1000 * float(np.median(one)), 3),
    }))  # fmt: skip


if __name__ == "__main__":
    main()
