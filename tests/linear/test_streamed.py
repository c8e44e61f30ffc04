"""Rankers that are written as they are solved are those of a training in memory, bit for bit."""

import json

import numpy as np
import pytest

from tests.linear.cases import features, label_matrix, random_chain, ranker_params
from xmc_tf.data import save_matrix
from xmc_tf.linear.train import main
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.rankers import XLinear, fit
from xmc_tf.rankers.fit import train_streamed, train_trees
from xmc_tf.rankers.layout import stored
from xmc_tf.rankers.level import UnreadWeights
from xmc_tf.rankers.problems import RankerData
from xmc_tf.store.checksums import record_files
from xmc_tf.tree import LabelTree, label_embeddings

ROWS, LABELS = 60, 40
CHAINS = [random_chain(LABELS, [3, 9]), random_chain(LABELS, [4], seed=1)]


def both(tmp_path, kind="sparse", chains=CHAINS, threads=2, **level):
    X, Y, params = features(kind, ROWS), label_matrix(ROWS, LABELS), ranker_params(**level)
    trees = [LabelTree.from_chain(chain) for chain in chains]
    folders = [tmp_path / str(number) for number in range(len(chains))]
    return (
        X,
        train_trees(X, Y, [tree.to_chain() for tree in trees], params=params, threads=threads, seed=3),
        train_streamed(RankerData(X, Y, trees), folders, params=params, threads=threads, seed=3),
    )


@pytest.mark.parametrize(
    ("kind", "level"),
    [
        ("sparse", {}),
        ("private", {"schemes": "tfn+man"}),
        ("dense", {"bias": 0.0}),
        ("both", {"bias": 2.0, "threshold": 0.01, "schemes": ["tfn", "man", "tfn"]}),
    ],
)
def test_weights_and_answers_are_those_of_a_training_in_memory(tmp_path, kind, level):
    X, expected, ours = both(tmp_path, kind, CHAINS[:1], **level)
    for one, other in zip(expected, ours, strict=True):
        for a, b in zip(one.levels, other.levels, strict=True):
            assert isinstance(b.stored, UnreadWeights)
            assert a.weights.shape == b.weights.shape
            assert b.nr_weights == b.weights.nnz
            for name in ("indptr", "indices", "data"):
                np.testing.assert_array_equal(getattr(a.weights, name), getattr(b.weights, name))
        found, right = other.predict(X, beam_size=4), one.predict(X, beam_size=4)
        np.testing.assert_allclose(found.toarray(), right.toarray(), rtol=1e-5, atol=1e-7)
        assert not list((tmp_path / "0").rglob("W.npz"))


def test_the_files_are_those_of_a_model_that_is_saved_from_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(stored, "FEWEST_WEIGHTS", 1)
    monkeypatch.setattr(fit, "WAITING_WORDS", 1)
    monkeypatch.setattr(stored, "SHARE", fit.SMALL_SHARE)
    _, expected, _ = both(tmp_path, threads=3)
    for number, model in enumerate(expected):
        model.save(tmp_path / "saved")
        for name in ("words.npy", "chunks.npy"):
            ours = (tmp_path / str(number) / "search" / name).read_bytes()
            assert ours == (tmp_path / "saved" / "search" / name).read_bytes()


def test_saving_links_the_layout_and_can_write_the_format_of_pecos(tmp_path):
    X, expected, ours = both(tmp_path, chains=CHAINS[:1])
    ours[0].save(tmp_path / "linked")
    assert (tmp_path / "linked/search/words.npy").samefile(tmp_path / "0/search/words.npy")
    ours[0].save(tmp_path / "pecos", pecos=True)
    for name in ("linked", "pecos"):
        model = XLinear.load(tmp_path / name)
        np.testing.assert_allclose(model.predict(X).toarray(), expected[0].predict(X).toarray(), rtol=1e-5, atol=1e-7)
    assert len(list((tmp_path / "pecos").rglob("W.npz"))) == 3


def test_the_command_chooses_the_layout_by_the_data(tmp_path, monkeypatch):
    X, Y = features("sparse", ROWS), label_matrix(ROWS, LABELS)
    save_matrix(tmp_path / "X.npz", X.sparse)
    save_matrix(tmp_path / "Y.npz", Y)
    command = ["-x", str(tmp_path / "X.npz"), "-y", str(tmp_path / "Y.npz"), "--max-leaf-size", "5", "-n", "2"]

    def trained(name, *flags):
        main([*command, "-m", str(tmp_path / name), *flags])
        assert not list(tmp_path.glob(".*"))
        return XRLinear.load(tmp_path / name)

    small, search = trained("small"), trained("search", "--layout", "search")
    assert list((tmp_path / "small").rglob("W.npz"))
    monkeypatch.setattr(label_embeddings, "MANY_ENTRIES", 1)
    large, pecos = trained("large"), trained("pecos", "--layout", "pecos")
    assert list((tmp_path / "pecos").rglob("W.npz"))
    for one, other in ((small, search), (pecos, large)):
        assert not list(other.folder.rglob("W.npz"))
        found, right = other.predict(X.sparse).toarray(), one.predict(X.sparse).toarray()
        np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-7)
        records = json.loads((other.folder / "params.json").read_text())["files"]
        assert records == record_files(other.folder, exclude=["params.json"])
    large.save(tmp_path / "again")
    assert (tmp_path / "again/ranker/search/words.npy").samefile(tmp_path / "large/ranker/search/words.npy")


def test_the_format_of_pecos_is_kept_by_copies_and_models_that_grow(tmp_path, monkeypatch):
    monkeypatch.setattr("xmc_tf.rankers.layout.stored.FEWEST_WEIGHTS", 1)
    X, Y = features("sparse", ROWS).sparse, label_matrix(ROWS, LABELS).tocsr()
    save_matrix(tmp_path / "X.npz", X[:-5])
    save_matrix(tmp_path / "Y.npz", Y[:-5])
    inputs = ["-x", str(tmp_path / "X.npz"), "-y", str(tmp_path / "Y.npz"), "--keep-training-data"]
    for layout, has_archives in (("pecos", True), ("search", False)):
        main([*inputs, "-m", str(tmp_path / layout), "--layout", layout])
        model = XRLinear.load(tmp_path / layout)
        model.save(tmp_path / f"{layout} copied")
        model.with_documents(X[-5:], Y[-5:]).without_labels([3]).save(tmp_path / f"{layout} grown")
        for name in (layout, f"{layout} copied", f"{layout} grown"):
            assert bool(list((tmp_path / name).rglob("W.npz"))) == has_archives, name


def test_a_model_without_weights_of_pecos_explains_and_grows(tmp_path):
    X, Y = features("sparse", ROWS).sparse, label_matrix(ROWS, LABELS).tocsr()
    save_matrix(tmp_path / "X.npz", X[:-5])
    save_matrix(tmp_path / "Y.npz", Y[:-5])
    grown, explained = [], []
    for layout in ("pecos", "search"):
        folder = tmp_path / layout
        main([
            "-x", str(tmp_path / "X.npz"), "-y", str(tmp_path / "Y.npz"), "--max-leaf-size", "5", "-m", str(folder),
            "--layout", layout, "--keep-training-data",
        ])  # fmt: skip
        model = XRLinear.load(folder)
        explained.append(str(model.explain(X[-1], k=2)))
        grown.append(model.with_documents(X[-5:], Y[-5:]).without_labels([3]))
        grown[-1].save(folder)
    assert explained[0] == explained[1]
    for one in (grown[1], XRLinear.load(tmp_path / "search")):
        np.testing.assert_array_equal(one.predict(X).toarray(), grown[0].predict(X).toarray())
