"""XR-Linear from raw text, each side with a TF-IDF and a tree of its own, against libpecos.

    python -m benchmarks.text_to_labels_vs_pecos --peer PYTHON --data DIR [--leaf 100] [--threads 2]

PYTHON runs a venv that has libpecos and scikit-learn, with which PECOS's users make their features (word 1-2-grams,
min_df 2, sublinear, at most 500,000). DATA holds X.trn.txt, X.tst.txt, Y.trn.npz, Y.tst.npz. Prints one JSON line: the
seconds of each step and P@1..5 of both sides.
"""

import argparse
import json
import os
import subprocess
from pathlib import Path

from benchmarks.sides import matrices
from xmc_tf.data import TextFile, as_features
from xmc_tf.features import Tfidf
from xmc_tf.params import HierarchicalKMeansParams
from xmc_tf.rankers.fit import train_rankers
from xmc_tf.tree.kmeans import build_tree
from xmc_tf.tree.label_embeddings import label_embedding

_PEER = """
import json, sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from matrices import labels, precision, seconds
from pathlib import Path
from sklearn.feature_extraction.text import TfidfVectorizer
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.base import HierarchicalKMeans
from pecos.xmc.xlinear.model import XLinearModel
data, leaf, threads = Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
texts = lambda name: [line.rstrip("\\n") for line in open(data / f"X.{name}.txt", encoding="utf-8")]
out = {}
v = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True, dtype=np.float32, max_features=500_000)
out["tfidf_s"], X = seconds(lambda: v.fit_transform(texts("trn")).tocsr())
Q = v.transform(texts("tst")).tocsr()
X.sort_indices(), Q.sort_indices()
Y = labels(data, "trn")
out["embedding_s"], Z = seconds(lambda: LabelEmbeddingFactory.create(Y.tocsr(), X, method="pifa"))
params = HierarchicalKMeans.TrainParams(nr_splits=16, max_leaf_size=leaf, threads=threads)
out["tree_s"], C = seconds(lambda: Indexer.gen(Z, train_params=params))
out["rankers_s"], model = seconds(lambda: XLinearModel.train(X, Y, C=C, threads=threads))
out["precision"] = precision(model.predict(Q, beam_size=10, only_topk=10, threads=threads).tocsr(), labels(data, "tst"))
print(json.dumps(out))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, help="a Python that has libpecos and scikit-learn")
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--leaf", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    a = parser.parse_args()
    ours = _ours(a.data, a.leaf, a.threads)
    run = subprocess.run(
        [a.peer, "-c", _PEER, str(Path(__file__).parent / "sides"), str(a.data), str(a.leaf), str(a.threads)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": ""},
    )
    peer = json.loads(run.stdout.splitlines()[-1])
    steps = ("tfidf_s", "embedding_s", "tree_s", "rankers_s")
    ratios = {step: round(peer[step] / ours[step], 2) for step in steps}
    ratios["all_s"] = round(sum(peer[step] for step in steps) / sum(ours[step] for step in steps), 2)
    figure = {"figure": "text_to_labels_vs_pecos", "data": a.data.name, "leaf": a.leaf, "threads": a.threads}
    print(json.dumps({**figure, "ours": ours, "peer": peer, "peer_over_ours": ratios}))


def _ours(data: Path, leaf: int, threads: int) -> dict[str, object]:
    """The same steps on our side; kernels are compiled before, on the first 300 texts."""
    params = HierarchicalKMeansParams(max_leaf_size=leaf, threads=threads)
    texts, Y = TextFile(data / "X.trn.txt"), matrices.labels(data, "trn")
    for first in (300, len(texts)):
        lines, labels = (texts, Y) if first == len(texts) else (texts.lines(0, first), Y[:first])
        out: dict[str, object] = {}
        out["tfidf_s"], (tfidf, X) = matrices.seconds(lambda lines=lines: _fitted(lines, threads))
        out["embedding_s"], Z = matrices.seconds(lambda X=X, Y=labels: label_embedding("pifa", X, Y, threads=threads))
        out["tree_s"], tree = matrices.seconds(lambda Z=Z: build_tree(Z, params))
        out["rankers_s"], model = matrices.seconds(
            lambda X=X, Y=labels, tree=tree: train_rankers(X, Y, tree.to_chain(), threads=threads)
        )
    queries = as_features(tfidf.transform(TextFile(data / "X.tst.txt"), threads=threads))
    predicted = model.predict(queries, beam_size=10, only_topk=10, threads=threads)
    out["precision"] = matrices.precision(predicted, matrices.labels(data, "tst"))
    return {key: round(value, 3) if isinstance(value, float) else value for key, value in out.items()}


def _fitted(lines: object, threads: int) -> tuple[Tfidf, object]:
    tfidf = Tfidf.fit(lines, threads=threads)
    return tfidf, as_features(tfidf.transform(lines, threads=threads))


if __name__ == "__main__":
    main()
