"""Check that libpecos and xmc_tf load each other's models and predict the same, with all post-processors.

    python -m benchmarks.interop.rankers_with_pecos --peer PYTHON

PYTHON runs a venv that has libpecos. We train a model on a small random problem, and PECOS trains one; each side
predicts with both. Prints one JSON line a post-processor; exit status 1 where a label differs, or a score by more than
1e-5.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse as smat

from benchmarks.sides import matrices
from xmc_tf.data import as_features
from xmc_tf.params import POST_PROCESSORS
from xmc_tf.rankers import XLinear
from xmc_tf.rankers.fit import train_rankers
from xmc_tf.tree import save_chain
from xmc_tf.tree.kmeans import build_tree
from xmc_tf.tree.label_embeddings import label_embedding

_ROOT = Path(__file__).parents[2]
_TOLERANCE = 1e-5
_PEER = """
import json, sys
sys.path.insert(0, sys.argv[1])
import matrices, scipy.sparse as smat
from pathlib import Path
from pecos.xmc.base import ClusterChain
from pecos.xmc.xlinear.model import XLinearModel
features, data, work, posts = *map(Path, sys.argv[2:5]), json.loads(sys.argv[5])
X, = matrices.load(features, "trn", False)
XLinearModel.train(X, matrices.labels(data, "trn"), C=ClusterChain(matrices.chain(features))).save(str(work / "peer"))
Q, = matrices.load(features, "tst", False)
for model in ("ours", "peer"):
    loaded = XLinearModel.load(str(work / model), is_predict_only=True)
    for post in posts:
        P = loaded.predict(Q, beam_size=10, only_topk=10, post_processor=post)
        smat.save_npz(work / f"{model}.{post}.npz", P.tocsr())
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, help="a Python that has libpecos")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        _make_problem(work)
        X, Y = as_features(matrices.load(work, "trn", False)[0]), matrices.labels(work, "trn")
        train_rankers(X, Y, matrices.chain(work)).save(work / "ours", pecos=True)
        subprocess.run(
            [a.peer, "-c", _PEER, _ROOT / "benchmarks/sides", work, work, work, json.dumps(POST_PROCESSORS)],
            check=True,
            env={**os.environ, "PYTHONPATH": ""},
        )
        queries = as_features(matrices.load(work, "tst", False)[0])
        agree = [_compare(work, model, post, queries) for model in ("ours", "peer") for post in POST_PROCESSORS]
    sys.exit(0 if all(agree) else 1)


def _compare(work: Path, model: str, post: str, queries: object) -> bool:
    """Compare our predictions with PECOS's for one model and one post-processor."""
    ours = XLinear.load(work / model).predict(queries, beam_size=10, only_topk=10, post_processor=post)
    theirs = smat.load_npz(work / f"{model}.{post}.npz").tocsr()
    ours_dense, theirs_dense = _filled(ours), _filled(theirs)
    # Labels of equal score may stand in for each other at the end of a row; else the same labels are wanted.
    differing = sum(
        set(ours.indices[slice(*ours.indptr[i : i + 2])]) != set(theirs.indices[slice(*theirs.indptr[i : i + 2])])
        and abs(ours_dense[i].min() - theirs_dense[i].min()) > _TOLERANCE
        for i in range(ours.shape[0])
    )
    worst = float(np.abs(ours_dense - theirs_dense).max())
    print(json.dumps({
        "interop": "rankers_with_pecos", "model_of": model, "post_processor": post, "queries": ours.shape[0],
        "rows_with_other_labels": int(differing), "largest_score_difference": worst,
    }))  # fmt: skip
    return differing == 0 and worst <= _TOLERANCE


def _filled(predicted: smat.csr_matrix) -> np.ndarray:
    """Return scores, best first, as a dense array."""
    out = np.zeros((predicted.shape[0], 10), np.float64)
    for i in range(predicted.shape[0]):
        scores = np.sort(predicted.data[predicted.indptr[i] : predicted.indptr[i + 1]])[::-1]
        out[i, : len(scores)] = scores
    return out


def _make_problem(work: Path) -> None:
    """Write a small random problem: 3,000 documents, 500 features, 300 labels that depend on the features."""
    random = np.random.default_rng(0)
    for name, rows in (("trn", 3000), ("tst", 500)):
        X = smat.random(rows, 500, 0.04, "csr", np.float32, random_state=random)
        hidden = np.random.default_rng(1).standard_normal((500, 300)).astype(np.float32)
        best = np.argsort(-(X @ hidden), axis=1)[:, :3]
        Y = smat.csr_matrix((np.ones(best.size, np.float32), best.ravel(), np.arange(0, best.size + 1, 3)), (rows, 300))
        smat.save_npz(work / f"X.{name}.npz", X, compressed=False)
        smat.save_npz(work / f"Y.{name}.npz", Y, compressed=False)
        if name == "trn":
            save_chain(work / "hlt", build_tree(label_embedding("pifa", X, Y)))


if __name__ == "__main__":
    main()
