"""PECOS's rankers, run by PECOS's Python: ``peer_side.py {train|predict} JSON``, one JSON line out."""

import json
import sys
from pathlib import Path

import matrices  # beside this file: PECOS's Python knows nothing of our packages
import scipy.sparse as smat
from pecos.xmc.base import ClusterChain
from pecos.xmc.xlinear.model import XLinearModel


def together(parts):
    """PECOS stores dense features as sparse entries."""
    if len(parts) == 1:
        return parts[0]
    both = smat.hstack([parts[0], smat.csr_matrix(parts[1])], format="csr", dtype="float32")
    both.sort_indices()
    return both


def main():
    job, a = sys.argv[1], json.loads(sys.argv[2])
    features, data = Path(a["features"]), Path(a["data"])
    if job == "train":
        X = together(matrices.load(features, "trn", a["dense"]))
        Y, chain = matrices.labels(data, "trn"), ClusterChain(matrices.chain(features))
        took, model = matrices.seconds(
            lambda: XLinearModel.train(X, Y, C=chain, threshold=a["threshold"], threads=a["threads"])
        )
        weights = int(sum(level.W.nnz for level in model.model.model_chain))
        model.save(a["model"])
        print(json.dumps({"train_s": round(took, 3), "weights": weights, "train_peak_mb": matrices.peak_mb()}))
        return
    X = together(matrices.load(features, "tst", a["dense"]))
    model = XLinearModel.load(a["model"], is_predict_only=True)
    one = [X[i] for i in range(min(400, X.shape[0]))]

    def predict(queries):
        return model.predict(queries, beam_size=a["beam"], only_topk=10, threads=1)

    print(json.dumps(matrices.prediction_figures(predict, X, matrices.labels(data, "tst"), one)))


if __name__ == "__main__":
    main()
