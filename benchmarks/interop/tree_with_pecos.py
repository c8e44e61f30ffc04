"""Check that PECOS and xmc_tf load each other's label trees equally: shapes, indices byte by byte, embeddings, quality.

Run by PECOS's Python; ours run in their own, and the two meet in files only:

    PEER/bin/python benchmarks/interop/tree_with_pecos.py --ours .venv/bin/python

With ``--features`` (a folder with PECOS's ``X.trn.npz`` and ``hlt/``) and ``--label-path Y.trn.npz`` the quality of
both trees on those data is compared too.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse as sp

SHAPES = [
    (labels, nr_splits, leaf, min_codes)
    for labels in (1, 2, 3, 5, 16, 17, 64, 100, 101, 1000, 4096, 5000)
    for nr_splits in (2, 3, 8, 16, 64)
    for leaf in (1, 2, 3, 16, 100)
    for min_codes in (None, 1, 2, 5, 32, 128)
]


def as_peer(folder: Path) -> None:
    """Run the part that needs PECOS's Python, with results in the same folder."""
    from pecos.utils.cluster_util import ClusterChain
    from pecos.xmc import Indexer, LabelEmbeddingFactory

    answers = []
    for labels, nr_splits, leaf, min_codes in SHAPES:
        features = np.random.default_rng(0).normal(size=(labels, 3)).astype(np.float32)
        try:
            chain = Indexer.gen(
                features, nr_splits=nr_splits, max_leaf_size=leaf, min_codes=min_codes, kmeans_max_iter=1, threads=1
            )
            answers.append([list(C.shape) for C in chain])
        except ValueError:
            answers.append(None)  # it refuses where leaves would be empty
    (folder / "shapes.json").write_text(json.dumps(answers))
    ClusterChain.load(str(folder / "ours")).save(str(folder / "ours-by-peer"))
    Z = sp.load_npz(folder / "Z.npz").astype(np.float32)
    Indexer.gen(Z, nr_splits=4, max_leaf_size=10, threads=1).save(str(folder / "peers"))
    C = sp.load_npz(folder / "code.npz")
    ClusterChain.from_partial_chain(C, nr_splits=4).save(str(folder / "code-by-peer"))
    X, Y = sp.load_npz(folder / "X.npz").tocsr(), sp.load_npz(folder / "Y.npz").tocsr()
    for method in ("pifa", "pii"):
        sp.save_npz(folder / f"{method}.npz", LabelEmbeddingFactory.create(Y, X, method=method).tocsr())
    for method in ("pifa_lf_concat", "pifa_lf_convex_combine"):
        sp.save_npz(folder / f"{method}.npz", LabelEmbeddingFactory.create(Y, X, method=method, Z=Z).tocsr())


def read(folder: Path) -> list[sp.csc_matrix]:
    """Return a chain loaded with scipy only, independent of both sides."""
    depth = json.loads((folder / "config.json").read_text())["len"]
    return [sp.load_npz(folder / f"C{t}.npz") for t in range(depth)]


def same_bytes(a: Path, b: Path) -> bool:
    """Return whether two chains have the same matrices in the same types and order."""
    first, second = read(a), read(b)
    return len(first) == len(second) and all(
        A.shape == B.shape
        and A.format == B.format == "csc"
        and all(
            getattr(A, part).dtype == getattr(B, part).dtype and np.array_equal(getattr(A, part), getattr(B, part))
            for part in ("indptr", "indices", "data")
        )
        for A, B in zip(first, second, strict=True)
    )


def cohesion(embeddings: sp.csr_matrix, leaves: sp.csc_matrix) -> float:
    """Return the mean cosine between a label and the centroid of its leaf."""
    sums = (embeddings.T @ leaves).tocsc()
    return float(np.sqrt(np.asarray(sums.multiply(sums).sum(axis=0))).sum() / embeddings.shape[0])


def compare(peer: str, features: Path | None, label_path: Path | None) -> dict[str, object]:
    """Run both sides and print what agrees."""
    from xmc_tf.params import HierarchicalKMeansParams
    from xmc_tf.tree import load_chain, save_chain
    from xmc_tf.tree.kmeans import build_tree
    from xmc_tf.tree.label_embeddings import label_embedding

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rng = np.random.default_rng(0)
        X = sp.random(400, 60, 0.1, "csr", np.float32, rng)
        Y = sp.csr_matrix(sp.random(400, 150, 0.02, "csr", np.float32, rng).astype(bool), dtype=np.float32)
        Z = sp.csr_matrix(sp.random(150, 60, 0.2, "csr", np.float32, rng))
        code = sp.csc_matrix((np.ones(150, np.float32), (np.arange(150), rng.permutation(150) % 37)), shape=(150, 37))
        for matrix, file in ((X, "X"), (Y, "Y"), (Z, "Z"), (code, "code")):
            sp.save_npz(folder / f"{file}.npz", matrix, compressed=False)
        tree = build_tree(Z, HierarchicalKMeansParams(nr_splits=4, max_leaf_size=10, threads=1))
        save_chain(folder / "ours", tree)
        subprocess.run([peer, __file__, "--as-peer", name], check=True)
        report: dict[str, object] = {}
        report["our chain, through PECOS, byte by byte"] = same_bytes(folder / "ours", folder / "ours-by-peer")
        save_chain(folder / "peers-by-us", load_chain(folder / "peers"))
        report["PECOS's chain, through us, byte by byte"] = same_bytes(folder / "peers", folder / "peers-by-us")
        report["a bare matrix gets the same levels"] = [C.shape for C in read(folder / "code-by-peer")] == [
            C.shape for C in load_chain(folder / "code.npz", nr_splits=4).to_chain()
        ] and load_chain(folder / "code.npz", nr_splits=4) == load_chain(folder / "code-by-peer")
        report["shapes of levels"] = _same_shapes(json.loads((folder / "shapes.json").read_text()))
        for method in ("pifa", "pii", "pifa_lf_concat", "pifa_lf_convex_combine"):
            ours, theirs = label_embedding(method, X, Y, Z), sp.load_npz(folder / f"{method}.npz")
            report[method] = ours.shape == theirs.shape and bool(abs(ours - theirs).max() < 1e-6)
        if features is not None and label_path is not None:
            report["cohesion"] = _cohesions(features, label_path)
    return report


def _same_shapes(answers: list[list[list[int]] | None]) -> str | bool:
    """Compare the shapes of all levels wherever PECOS has an answer."""
    from xmc_tf.params import HierarchicalKMeansParams
    from xmc_tf.tree.kmeans import build_tree

    for (labels, nr_splits, leaf, min_codes), theirs in zip(SHAPES, answers, strict=True):
        params = HierarchicalKMeansParams(
            nr_splits=nr_splits, max_leaf_size=leaf, min_codes=min_codes, kmeans_max_iter=1, threads=1
        )
        tree = build_tree(np.random.default_rng(0).normal(size=(labels, 3)).astype(np.float32), params)
        ours = [list(C.shape) for C in tree.to_chain()]
        if theirs is not None and ours != theirs:
            return f"{labels} labels, {nr_splits=}, {leaf=}, {min_codes=}: ours {ours}, PECOS {theirs}"
    return True


def _cohesions(features: Path, label_path: Path) -> dict[str, object]:
    from xmc_tf.params import HierarchicalKMeansParams
    from xmc_tf.tree import load_chain
    from xmc_tf.tree.kmeans import build_tree
    from xmc_tf.tree.label_embeddings import label_embedding

    Y = sp.load_npz(label_path).tocsr()
    Z = label_embedding("pifa", sp.load_npz(features / "X.trn.npz").tocsr(), Y)
    theirs = load_chain(features / "hlt")
    leaf = int(np.diff(theirs.splits[-1]).max())
    ours = [
        cohesion(Z, build_tree(Z, HierarchicalKMeansParams(max_leaf_size=leaf, seed=seed)).to_chain()[-1])
        for seed in range(5)
    ]
    return {"PECOS": cohesion(Z, theirs.to_chain()[-1]), "ours, seeds 0 to 4": [round(value, 4) for value in ours]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", help="the Python of our environment")
    parser.add_argument("--features", type=Path, help="a folder with X.trn.npz and hlt/")
    parser.add_argument("--label-path", type=Path, help="the label matrix of those features")
    parser.add_argument("--as-peer", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_peer:
        as_peer(options.as_peer)
    elif options.ours:
        given = [] if options.features is None else ["--features", str(options.features)]
        given += [] if options.label_path is None else ["--label-path", str(options.label_path)]
        # From here on we are in our own Python, which calls PECOS's back for its part.
        sys.exit(subprocess.run([options.ours, __file__, *given, "--peer", sys.executable]).returncode)
    elif options.peer:
        sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
        report = compare(options.peer, options.features, options.label_path)
        print(json.dumps(report, indent=2))
        sys.exit(0 if all(answer is True for what, answer in report.items() if what != "cohesion") else 1)
    else:
        parser.error("name the Python of our environment: --ours .venv/bin/python")


if __name__ == "__main__":
    main()
