"""libpecos on the model of ``instant_start``, in its own Python: ``peer_instant_start.py FOLDER FORM BEAM TOPK``."""

import json
import sys
import time
from pathlib import Path

import matrices  # beside this file: PECOS's Python knows nothing of our packages
import numpy as np
import scipy.sparse as smat
from pecos.xmc.xlinear.model import XLinearModel

_ALONE = 2000  # queries that are answered one at a time, as on our side


def main():
    folder, form, beam, topk = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    X = smat.load_npz(folder / "queries.npz").tocsr().astype(np.float32)
    start = time.process_time()
    model = XLinearModel.load(str(folder / "pecos"), is_predict_only=True, weight_matrix_type=form)
    load_s = time.process_time() - start

    def predict(queries):
        return model.predict(queries, beam_size=beam, only_topk=topk, threads=1)

    P = predict(X)
    rows = [X[row] for row in range(min(_ALONE, X.shape[0]))]
    batch = max(_speed(lambda: predict(X), X.shape[0]) for _ in range(3))
    single = max(_speed(lambda: [predict(row) for row in rows], len(rows)) for _ in range(3))
    best = [int(P.indices[a + np.argmax(P.data[a:b])]) for a, b in zip(P.indptr, P.indptr[1:], strict=False)]
    print(json.dumps({
        "load_cpu_s": round(load_s, 1), "peak_mb": matrices.peak_mb(), "batch_per_s": round(batch),
        "single_matrix_per_s": round(single), "best": best,
    }))  # fmt: skip


def _speed(run, count):
    start = time.process_time()
    run()
    return count / (time.process_time() - start)


if __name__ == "__main__":
    main()
