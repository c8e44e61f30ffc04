"""Our rankers, trained or predicting: ``our_side.py {train|predict} JSON``, one JSON line out."""

import json
import sys
from pathlib import Path

from benchmarks.sides import matrices
from xmc_tf.data import Features
from xmc_tf.params import RankerParams
from xmc_tf.rankers import XLinear
from xmc_tf.rankers.fit import train_rankers


def main() -> None:
    job, a = sys.argv[1], json.loads(sys.argv[2])
    features, data = Path(a["features"]), Path(a["data"])
    if job == "train":
        X = Features(*matrices.load(features, "trn", a["dense"]))
        Y, chain = matrices.labels(data, "trn"), matrices.chain(features)
        params = RankerParams.from_json({"hlm_args": {"model_chain": {"threshold": a["threshold"]}}})
        if a["warm"]:  # compiled kernels come from the disk: that is no part of the training
            train_rankers(X.rows(slice(0, 200)), Y[:200], chain, params=params, threads=1)
        took, model = matrices.seconds(lambda: train_rankers(X, Y, chain, params=params, threads=a["threads"]))
        model.save(a["model"])
        print(json.dumps({"train_s": round(took, 3), "weights": model.nr_weights, "train_peak_mb": matrices.peak_mb()}))
        return
    X = Features(*matrices.load(features, "tst", a["dense"]))
    model = XLinear.load(a["model"], nr_dense=X.nr_dense)
    one = [X.rows(slice(i, i + 1)) for i in range(min(400, X.nr_rows))]

    def predict(queries: Features) -> object:
        return model.predict(queries, beam_size=a["beam"], only_topk=10, threads=1)

    print(json.dumps(matrices.prediction_figures(predict, X, matrices.labels(data, "tst"), one)))


if __name__ == "__main__":
    main()
