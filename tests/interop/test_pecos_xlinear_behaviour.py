"""PECOS's own tests of linear models, applied to ours; trained models: ``benchmarks.interop.retrained_with_pecos``.

Each behaviour is written again, by what a test of PECOS asks (its name is given), on random data. These do not hold:

- ``test_set_output_constraint``: an empty list of labels predicts nothing; it is refused, because it is a mistake.
- ``test_get_submodel``: a node of our trees has one parent, so there are no parts of a level whose nodes have two.
- ``test_split_model_at_depth``: sub-models never have the whole model's shape (``reindex=False``).
- ``test_predict_consistency_…``: weights have one form, not one for memory maps (``is_predict_only``).
- ``test_cli``: the scores of PECOS's stored files are not copied.
"""

import contextlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from xmc_tf.data import Features, as_features, load_matrix, save_matrix
from xmc_tf.linear import evaluate, predict, train
from xmc_tf.params import POST_PROCESSORS, HierarchicalKMeansParams, RankerParams
from xmc_tf.rankers import Level, XLinear
from xmc_tf.rankers.fit import train_rankers
from xmc_tf.tree import save_chain
from xmc_tf.tree.kmeans import build_tree
from xmc_tf.tree.label_embeddings import label_embedding

pytestmark = pytest.mark.full

DOCUMENTS, FEATURES, LABELS = 60, 25, 12


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


def test_costs(tmp_path):
    """Cp = 2 is Cp = 1 with a relevance of 2 (PECOS: test_cost_sensitive)."""
    chain = [sp.csc_matrix(np.ones((LABELS, 1), np.float32))]
    doubled = trained(chain, rel_mode="ranker-only", R=2 * Y)
    close(doubled.levels[0].weights.toarray(), trained(chain, level={"Cp": 2.0}).levels[0].weights.toarray(), 1e-6)


def test_consistent(tmp_path):
    """Sparse, dense and single queries, all post-processors (PECOS: test_predict_consistency_…)."""
    for chain in (tree(), tree(nr_splits=2, max_leaf_size=2), tree(nr_splits=4, max_leaf_size=2)):
        model = trained(chain)
        for post in POST_PROCESSORS:
            how = {"post_processor": post, "beam_size": 2}
            whole = scores(model, **how)
            close(scores(model, X.toarray(), **how), whole, 3e-6)
            close(np.vstack([scores(model, X[[i]], **how) for i in range(5)]), whole[:5])


def test_commands(tmp_path):
    """Train, predict, select and evaluate by commands (PECOS: test_cli, test_consistency_of_primal)."""
    files(tmp_path)
    for features in ("X.npz", "X.npy"):
        for solver in ("L2R_L2LOSS_SVC_DUAL", "L2R_L2LOSS_SVC_PRIMAL"):
            data = ["-x", tmp_path / features, "-y", tmp_path / "Y.npz", "-m", tmp_path / f"m-{features}-{solver}"]
            command(train, *data, "-s", solver)
            printed = command(predict, *data, "-o", tmp_path / "P.npz", "--layout", "pecos")
            assert command(evaluate, "-y", tmp_path / "Y.npz", "-p", tmp_path / "P.npz") == printed
            command(predict, *data, "-o", tmp_path / "S.npz", "-so", tmp_path / "P.npz")
            close(load_matrix(tmp_path / "S.npz").toarray(), load_matrix(tmp_path / "P.npz").toarray())
    one, other = (XLinear.load(tmp_path / f"m-{name}-L2R_L2LOSS_SVC_DUAL" / "ranker") for name in ("X.npz", "X.npy"))
    close(scores(one), scores(other), 0.05)  # dense features are visited in another order: to the solver's tolerance


def test_evaluation(tmp_path):
    """Evaluation prints these bytes for a perfect prediction of one label per document (PECOS: test_cli)."""
    truth = sp.csr_matrix(np.eye(3, 12, dtype=np.float32))
    save_matrix(tmp_path / "T.npz", truth)
    expected = "==== evaluation results ====\n"
    expected += (
        "prec   = 100.00 50.00 33.33 25.00 20.00 16.67 14.29 12.50 11.11 10.00\nrecall =" + 10 * " 100.00" + "\n"
    )
    assert command(evaluate, "-y", tmp_path / "T.npz", "-p", tmp_path / "T.npz") == expected


def test_given_tree(tmp_path):
    """A tree from its folder and from its last matrix: the same model (PECOS: test_cli)."""
    files(tmp_path)
    chain = tree(max_leaf_size=4)
    save_chain(tmp_path / "tree", chain)
    sp.save_npz(tmp_path / "C.npz", chain[-1])
    data = ["-x", tmp_path / "X.npz", "-y", tmp_path / "Y.npz"]
    for name in ("tree", "C.npz"):
        command(train, *data, "-c", tmp_path / name, "-m", tmp_path / f"by-{name}")
    close(scores(XLinear.load(tmp_path / "by-tree/ranker")), scores(XLinear.load(tmp_path / "by-C.npz/ranker")))


def test_user_negatives(tmp_path):
    """User-supplied negatives that are the teacher's own change nothing (PECOS: test_cli)."""
    chain = tree(max_leaf_size=4)
    ours = trained(chain, "usn+tfn", user_negatives={0: Y.tocsr(), 1: (Y @ chain[-1]).tocsr()})
    close(scores(ours), scores(trained(chain)))


def test_matcher_aware(tmp_path):
    """Matcher-aware negatives, other settings for prediction than in training, chunks of two (PECOS: test_cli)."""
    files(tmp_path)
    data = ["-x", tmp_path / "X.npz", "-y", tmp_path / "Y.npz", "-m", tmp_path / "m"]
    command(train, *data, "-pp", "noop", "-b", 2, "-ns", "tfn+man", "--nr-splits", 2, "--max-leaf-size", 2)
    for name, more in (("P.npz", []), ("B.npz", ["-B", 2])):
        command(predict, *data, "-o", tmp_path / name, "-pp", "sigmoid", "-b", 4, *more)
    close(load_matrix(tmp_path / "B.npz").toarray(), load_matrix(tmp_path / "P.npz").toarray())


def two_levels(leaves: list[int]) -> XLinear:
    """Return a model of two nodes with two labels each; ``leaves`` are the parents of the labels."""
    random = np.random.default_rng(5)
    top = sp.csc_matrix(np.ones((2, 1), np.float32))
    bottom = sp.csc_matrix(np.eye(2, dtype=np.float32)[leaves])
    pred = trained([sp.csc_matrix(np.ones((LABELS, 1), np.float32))]).levels[0].pred_params
    weights = [sp.csc_matrix(random.standard_normal((10, nodes)), dtype=np.float32) for nodes in (2, 4)]
    return XLinear([Level(w, c, -1.0, pred) for w, c in zip(weights, (top, bottom), strict=True)], 10)


def test_by_hand(tmp_path):
    """A model made of weights and clusters predicts as the one they are from (PECOS: test_manual_init)."""
    model = trained(tree(max_leaf_size=4))
    levels = [Level(one.weights, one.clusters, 1.0, one.pred_params) for one in model.levels]
    close(scores(XLinear(levels, FEATURES)), scores(model))


def test_two_modes(tmp_path):
    """Matcher and ranker, one after the other, are the full model (PECOS: test_matcher_ranker_mode)."""
    chain, how = tree(nr_splits=2, max_leaf_size=2), {"beam_size": 2, "only_topk": 2, "post_processor": "noop"}
    matched = trained(chain, mode="matcher", ranker_level=1).predict(as_features(X), threads=1, **how)
    ranked = trained(chain, mode="ranker", ranker_level=1).predict(as_features(X), codes=matched, threads=1, **how)
    close(ranked.toarray(), scores(trained(chain), **how))


def test_shallow(tmp_path):
    """One-versus-all, and a tree of one level under many roots, find the true labels (PECOS: test_ova_shallow_mode)."""
    truth = Y.toarray()
    for chain in ([sp.csc_matrix(np.ones((LABELS, 1), np.float32))], [tree(max_leaf_size=4)[-1]]):
        best = scores(trained(chain), beam_size=99, only_topk=1).argmax(1)
        assert truth[np.arange(DOCUMENTS), best].mean() > 0.9


def test_constraint(tmp_path):
    """The search keeps the nodes that lead to the labels; saved, it stays so (PECOS: test_set_output_constraint)."""
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
                model.save(tmp_path / f"m{number}")
                for ours in (model, XLinear.load(tmp_path / f"m{number}")):
                    close(scores(ours, beam_size=beam, only_topk=beam), codes.toarray())


def test_selected(tmp_path):
    """Selected outputs have the scores of the search (PECOS: test_predict_consistency_between_topk_and_selected)."""
    for chain in (tree(nr_splits=2), tree(nr_splits=4)):
        model = trained(chain)
        for post in POST_PROCESSORS:
            for documents in (as_features(X), as_features(X.toarray())):
                top = model.predict(documents, post_processor=post, threads=1)
                again = model.predict_selected(documents, top, post_processor=post)
                close(again.toarray(), top.toarray())


def test_k_means(tmp_path):
    """Balanced halves; coarse levels of finer trees are the same (PECOS: test_xmc.py: test_hierarchicalkmeans)."""
    features = np.array([[1, 0], [0.95, 0.05], [0.9, 0.1], [0, 1]], np.float32)
    features /= np.linalg.norm(features, axis=1, keepdims=True)

    def chain(**params: Any) -> list[Any]:
        return build_tree(as_features(features), HierarchicalKMeansParams(**params)).to_chain()

    halves = chain(max_leaf_size=3)[-1].toarray()[:, 1].tolist()
    assert halves in ([0, 0, 1, 1], [1, 1, 0, 0])
    by_two, by_four = chain(max_leaf_size=1, nr_splits=2), chain(max_leaf_size=1, nr_splits=4)
    assert (by_two[-1] != by_four[-1]).nnz == 0
    assert ((by_two[1] @ by_two[0]) != by_four[0]).nnz == 0


def test_embeddings(tmp_path):
    """PIFA, PII, and both ways to add label features, by their formulas (PECOS: test_xmc.py: test_label_embedding)."""

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
