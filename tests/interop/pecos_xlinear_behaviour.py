"""PECOS's own tests of linear models, applied to ours: which behaviour holds, which differs, and why.

    python -m tests.interop.pecos_xlinear_behaviour

Each behaviour is written again, by what a test of PECOS asks (the name of that test is given), on random data. Needs no
PECOS; ``pytest tests/interop`` runs the same. Prints a row per behaviour and one JSON line; exit status 1 where one
that should hold does not. Trained models are compared with PECOS's by ``tests.interop.retrained_with_pecos``.
"""

import contextlib
import io
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from xmc_tf.data import Features, as_features, load_matrix, save_matrix
from xmc_tf.linear import evaluate, predict, train
from xmc_tf.metrics import format_table
from xmc_tf.params import POST_PROCESSORS, HierarchicalKMeansParams, RankerParams
from xmc_tf.rankers import Level, XLinear
from xmc_tf.rankers.fit import train_rankers
from xmc_tf.tree import save_chain
from xmc_tf.tree.kmeans import build_tree
from xmc_tf.tree.label_embeddings import label_embedding

DOCUMENTS, FEATURES, LABELS = 60, 25, 12
BEHAVIOURS: list[tuple[str, str, Callable[[Path], None]]] = []
# The test of PECOS, what it asks, why we do not do it.
NOT_SO = [
    ("test_set_output_constraint", "an empty list of labels predicts nothing", "refused: it is a mistake"),
    ("test_get_submodel", "parts of a level whose nodes have two parents", "a node of our trees has one parent"),
    (
        "test_split_model_at_depth",
        "sub-models of the whole model's shape (reindex=False)",
        "sub_model is small",
    ),
    ("test_predict_consistency_…", "weights for memory maps (is_predict_only, weight_matrix_type)", "one form for all"),
    ("test_cli", "the very scores of stored files", "theirs are not copied; see tests.interop.retrained_with_pecos"),
]


def behaviour(test: str, asks: str) -> Callable[[Callable[[Path], None]], Callable[[Path], None]]:
    """Add a behaviour to the list: the test of PECOS, and what it asks."""

    def add(check: Callable[[Path], None]) -> Callable[[Path], None]:
        BEHAVIOURS.append((test, asks, check))
        return check

    return add


def made_up(seed: int = 0) -> tuple[sp.csr_matrix, sp.csc_matrix]:
    """Return random features, and labels that depend on them."""
    random = np.random.default_rng(seed)
    full = sp.random(DOCUMENTS, FEATURES, 0.3, random_state=random).toarray()
    X = sp.csr_matrix(full / np.maximum(np.linalg.norm(full, axis=1, keepdims=True), 1e-9), dtype=np.float32)
    scores = X @ random.standard_normal((FEATURES, LABELS))
    Y = sp.csc_matrix((scores >= np.sort(scores, axis=1)[:, [-2]]).astype(np.float32))
    return X, Y


X, Y = made_up()


def tree(**params: Any) -> list[Any]:
    """Return a label tree of the random data as a chain of matrices."""
    return build_tree(label_embedding("pifa", X, Y), HierarchicalKMeansParams(**params)).to_chain()


def trained(chain: list[Any], schemes: str = "tfn", level: dict[str, Any] | None = None, **more: Any) -> XLinear:
    """Train on the random data."""
    given = {key: more.pop(key) for key in ("mode", "ranker_level", "rel_mode") if key in more}
    params = RankerParams.from_json({"hlm_args": {"neg_mining_chain": schemes, "model_chain": level or {}}, **given})
    return train_rankers(as_features(X), Y, chain, params=params, threads=1, **more)


def scores(model: XLinear, documents: Any = X, **how: Any) -> np.ndarray:
    """Return the scores of a prediction as a dense array."""
    features = documents if isinstance(documents, Features) else as_features(documents)
    return model.predict(features, threads=1, **how).toarray()


def close(ours: np.ndarray, expected: np.ndarray, tolerance: float = 1e-6) -> None:
    """Raise where two arrays differ by more than the tolerance, or than float32 of large numbers allows."""
    np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=tolerance)


def command(module: Any, *flags: Any) -> str:
    """Run a command in this process; return what it prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        module.main([str(flag) for flag in flags])
    return out.getvalue()


def files(folder: Path) -> None:
    """Write the random data as a user would have it, dense features too."""
    save_matrix(folder / "X.npz", X)
    save_matrix(folder / "X.npy", X.toarray())
    save_matrix(folder / "Y.npz", Y.tocsr())


@behaviour("test_cost_sensitive", "Cp = 2 is Cp = 1 with a relevance of 2")
def costs(folder: Path) -> None:
    chain = [sp.csc_matrix(np.ones((LABELS, 1), np.float32))]
    doubled = trained(chain, rel_mode="ranker-only", R=2 * Y)
    close(doubled.levels[0].weights.toarray(), trained(chain, level={"Cp": 2.0}).levels[0].weights.toarray(), 1e-6)


@behaviour("test_predict_consistency_between_python_and_cpp", "sparse, dense and single queries, all post-processors")
def consistent(folder: Path) -> None:
    for chain in (tree(), tree(nr_splits=2, max_leaf_size=2), tree(nr_splits=4, max_leaf_size=2)):
        model = trained(chain)
        for post in POST_PROCESSORS:
            how = {"post_processor": post, "beam_size": 2}
            whole = scores(model, **how)
            close(scores(model, X.toarray(), **how), whole, 3e-6)
            close(np.vstack([scores(model, X[[i]], **how) for i in range(5)]), whole[:5])


@behaviour("test_cli, test_consistency_of_primal", "train, predict, select and evaluate by commands, sparse and dense")
def commands(folder: Path) -> None:
    files(folder)
    for features in ("X.npz", "X.npy"):
        for solver in ("L2R_L2LOSS_SVC_DUAL", "L2R_L2LOSS_SVC_PRIMAL"):
            data = ["-x", folder / features, "-y", folder / "Y.npz", "-m", folder / f"m-{features}-{solver}"]
            command(train, *data, "-s", solver)
            printed = command(predict, *data, "-o", folder / "P.npz", "--layout", "pecos")
            assert command(evaluate, "-y", folder / "Y.npz", "-p", folder / "P.npz") == printed
            command(predict, *data, "-o", folder / "S.npz", "-so", folder / "P.npz")
            close(load_matrix(folder / "S.npz").toarray(), load_matrix(folder / "P.npz").toarray())
    one, other = (XLinear.load(folder / f"m-{name}-L2R_L2LOSS_SVC_DUAL" / "ranker") for name in ("X.npz", "X.npy"))
    close(scores(one), scores(other), 0.05)  # dense features are visited in another order: to the solver's tolerance


@behaviour("test_cli", "evaluation prints these bytes for a perfect prediction of one label per document")
def evaluation(folder: Path) -> None:
    truth = sp.csr_matrix(np.eye(3, 12, dtype=np.float32))
    save_matrix(folder / "T.npz", truth)
    expected = "==== evaluation results ====\n"
    expected += (
        "prec   = 100.00 50.00 33.33 25.00 20.00 16.67 14.29 12.50 11.11 10.00\nrecall =" + 10 * " 100.00" + "\n"
    )
    assert command(evaluate, "-y", folder / "T.npz", "-p", folder / "T.npz") == expected


@behaviour("test_cli", "a tree from its folder and from its last matrix: the same model")
def given_tree(folder: Path) -> None:
    files(folder)
    chain = tree(max_leaf_size=4)
    save_chain(folder / "tree", chain)
    sp.save_npz(folder / "C.npz", chain[-1])
    data = ["-x", folder / "X.npz", "-y", folder / "Y.npz"]
    for name in ("tree", "C.npz"):
        command(train, *data, "-c", folder / name, "-m", folder / f"by-{name}")
    close(scores(XLinear.load(folder / "by-tree/ranker")), scores(XLinear.load(folder / "by-C.npz/ranker")))


@behaviour("test_cli", "user-supplied negatives that are the teacher's own change nothing")
def user_negatives(folder: Path) -> None:
    chain = tree(max_leaf_size=4)
    ours = trained(chain, "usn+tfn", user_negatives={0: Y.tocsr(), 1: (Y @ chain[-1]).tocsr()})
    close(scores(ours), scores(trained(chain)))


@behaviour("test_cli", "matcher-aware negatives, other settings for prediction than in training, chunks of two")
def matcher_aware(folder: Path) -> None:
    files(folder)
    data = ["-x", folder / "X.npz", "-y", folder / "Y.npz", "-m", folder / "m"]
    command(train, *data, "-pp", "noop", "-b", 2, "-ns", "tfn+man", "--nr-splits", 2, "--max-leaf-size", 2)
    for name, more in (("P.npz", []), ("B.npz", ["-B", 2])):
        command(predict, *data, "-o", folder / name, "-pp", "sigmoid", "-b", 4, *more)
    close(load_matrix(folder / "B.npz").toarray(), load_matrix(folder / "P.npz").toarray())


def two_levels(leaves: list[int]) -> XLinear:
    """Return a model of two nodes with two labels each; ``leaves`` are the parents of the labels."""
    random = np.random.default_rng(5)
    top = sp.csc_matrix(np.ones((2, 1), np.float32))
    bottom = sp.csc_matrix(np.eye(2, dtype=np.float32)[leaves])
    pred = trained([sp.csc_matrix(np.ones((LABELS, 1), np.float32))]).levels[0].pred_params
    weights = [sp.csc_matrix(random.standard_normal((10, nodes)), dtype=np.float32) for nodes in (2, 4)]
    return XLinear([Level(w, c, -1.0, pred) for w, c in zip(weights, (top, bottom), strict=True)], 10)


@behaviour("test_manual_init", "a model made of weights and clusters predicts as the one they are from")
def by_hand(folder: Path) -> None:
    model = trained(tree(max_leaf_size=4))
    levels = [Level(one.weights, one.clusters, 1.0, one.pred_params) for one in model.levels]
    close(scores(XLinear(levels, FEATURES)), scores(model))


@behaviour("test_matcher_ranker_mode", "matcher and ranker, one after the other, are the full model")
def two_modes(folder: Path) -> None:
    chain, how = tree(nr_splits=2, max_leaf_size=2), {"beam_size": 2, "only_topk": 2, "post_processor": "noop"}
    matched = trained(chain, mode="matcher", ranker_level=1).predict(as_features(X), threads=1, **how)
    ranked = trained(chain, mode="ranker", ranker_level=1).predict(as_features(X), codes=matched, threads=1, **how)
    close(ranked.toarray(), scores(trained(chain), **how))


@behaviour("test_ova_shallow_mode", "one-versus-all, and a tree of one level under many roots, find the true labels")
def shallow(folder: Path) -> None:
    truth = Y.toarray()
    for chain in ([sp.csc_matrix(np.ones((LABELS, 1), np.float32))], [tree(max_leaf_size=4)[-1]]):
        best = scores(trained(chain), beam_size=99, only_topk=1).argmax(1)
        assert truth[np.arange(DOCUMENTS), best].mean() > 0.9


@behaviour("test_set_output_constraint", "the search keeps the nodes that lead to the labels; saved, it stays so")
def constraint(folder: Path) -> None:
    for number, chain in enumerate((tree(nr_splits=2, max_leaf_size=2), tree(nr_splits=4, max_leaf_size=2), tree())):
        for keep in ([0, LABELS // 3, LABELS // 2, LABELS - 1], [0, LABELS // 3]):
            for beam in (2, LABELS):
                model = trained(chain)
                codes: Any = None
                allowed = np.isin(np.arange(LABELS), keep)
                leading = [allowed]
                for clusters in chain[:0:-1]:
                    leading.insert(0, (clusters.T @ leading[0]) > 0)
                for level, nodes in zip(model.levels, leading, strict=True):
                    alone = XLinear([level], FEATURES)
                    every = alone.predict(as_features(X), codes=codes, only_topk=len(nodes), threads=1).toarray()
                    every[:, ~nodes] = 0
                    every[every < np.sort(every, axis=1)[:, [-min(beam, every.shape[1])]]] = 0
                    codes = sp.csr_matrix(every)
                model.set_output_constraint(keep)
                model.save(folder / f"m{number}")
                for ours in (model, XLinear.load(folder / f"m{number}")):
                    close(scores(ours, beam_size=beam, only_topk=beam), codes.toarray())


@behaviour("test_predict_consistency_between_topk_and_selected", "selected outputs have the scores of the search")
def selected(folder: Path) -> None:
    for chain in (tree(nr_splits=2), tree(nr_splits=4)):
        model = trained(chain)
        for post in POST_PROCESSORS:
            for documents in (as_features(X), as_features(X.toarray())):
                top = model.predict(documents, post_processor=post, threads=1)
                again = model.predict_selected(documents, top, post_processor=post)
                close(again.toarray(), top.toarray())


@behaviour("test_xmc.py: test_hierarchicalkmeans", "balanced halves; coarse levels of finer trees are the same")
def k_means(folder: Path) -> None:
    features = np.array([[1, 0], [0.95, 0.05], [0.9, 0.1], [0, 1]], np.float32)
    features /= np.linalg.norm(features, axis=1, keepdims=True)

    def chain(**params: Any) -> list[Any]:
        return build_tree(as_features(features), HierarchicalKMeansParams(**params)).to_chain()

    halves = chain(max_leaf_size=3)[-1].toarray()[:, 1].tolist()
    assert halves in ([0, 0, 1, 1], [1, 1, 0, 0])
    by_two, by_four = chain(max_leaf_size=1, nr_splits=2), chain(max_leaf_size=1, nr_splits=4)
    assert (by_two[-1] != by_four[-1]).nnz == 0
    assert ((by_two[1] @ by_two[0]) != by_four[0]).nnz == 0


@behaviour("test_xmc.py: test_label_embedding", "PIFA, PII, and both ways to add label features, by their formulas")
def embeddings(folder: Path) -> None:
    def plain(matrix: Any) -> np.ndarray:
        matrix = getattr(matrix, "sparse", matrix) if getattr(matrix, "sparse", None) is not None else matrix
        return matrix.toarray() if sp.issparse(matrix) else np.asarray(getattr(matrix, "dense", matrix))

    def unit(rows: np.ndarray) -> np.ndarray:
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)

    pifa = unit(unit(Y.toarray()).T @ X.toarray())
    Z = np.random.default_rng(1).random((LABELS, 4)).astype(np.float32)
    close(plain(label_embedding("pifa", X, Y)), pifa)
    close(plain(label_embedding("pifa", X.toarray(), Y)), pifa)
    close(plain(label_embedding("pii", None, Y)), unit(Y.toarray().T))
    close(plain(label_embedding("pifa_lf_concat", X.toarray(), Y, Z)), np.hstack([pifa, Z]))
    same = np.random.default_rng(2).random((LABELS, FEATURES)).astype(np.float32)
    for alpha in (0.3, np.linspace(0, 1, LABELS)):
        mixed = np.reshape(alpha, (-1, 1)) * pifa + (1 - np.reshape(alpha, (-1, 1))) * same
        close(plain(label_embedding("pifa_lf_convex_combine", X.toarray(), Y, same, alpha=alpha)), mixed)


def main() -> None:
    """Ask for every behaviour and print which hold."""
    rows, failed = [], 0
    for test, asks, check in BEHAVIOURS:
        try:
            with tempfile.TemporaryDirectory() as folder:
                check(Path(folder))
            rows.append(["holds", test, asks])
        except Exception as error:  # noqa: BLE001  whatever it is, the others are still asked for
            failed += 1
            rows.append(["FAILS", test, f"{asks}: {type(error).__name__} {str(error).strip().splitlines()[:1]}"])
    rows += [["not so", test, f"{asks}: {why}"] for test, asks, why in NOT_SO]
    print(format_table(["", "test of PECOS", "asks"], rows, left=3, width=1000))
    print(
        json.dumps(
            {
                "interop": "pecos_xlinear_behaviour",
                "hold": len(BEHAVIOURS) - failed,
                "fail": failed,
                "not_so": len(NOT_SO),
            }
        )
    )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
