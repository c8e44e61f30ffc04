"""Frequent mistakes of new users: the other kind of model, a large -k, a transposed matrix, an interrupted run."""

import json
import os
import pickle
import signal
import subprocess
import sys

import numpy as np
import pytest
from scipy.sparse import csc_matrix, csr_matrix, random

from tests.refusals import refused
from xmc_tf.data import as_features, check_pair, save_matrix
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.params import LinearLevelPredParams
from xmc_tf.rankers.level import Level
from xmc_tf.rankers.xlinear import XLinear
from xmc_tf.tree import LabelTree


def clusters_of(*sizes):
    """Return a cluster matrix, nodes × parents, with these numbers of children."""
    parents = np.repeat(np.arange(len(sizes)), sizes)
    return csc_matrix((np.ones(len(parents), np.float32), (np.arange(len(parents)), parents)))


def rankers(*levels, beam=10):
    return XLinear(
        [
            Level(
                csc_matrix(np.ones((4, matrix.shape[0]), np.float32)), matrix, 1.0,
                LinearLevelPredParams(only_topk=beam),
            )
            for matrix in (clusters_of(*sizes) for sizes in levels)
        ],
        3,
    )  # fmt: skip


@pytest.mark.parametrize(("beam", "most"), [(1, 7), (2, 12), (3, 14), (9, 14), (None, 14)])
def test_how_many_labels_a_beam_can_reach(beam, most):
    model = rankers([3], [2, 5, 7])
    assert model.most_labels(beam) == most
    X = as_features(csr_matrix(np.ones((1, 3), np.float32)))
    assert model.predict(X, beam_size=beam, only_topk=14).nnz <= most


def test_a_k_out_of_reach_is_reported(caplog):
    caplog.set_level("INFO")
    model = rankers([3], [2, 5, 7])
    model.warn_if_out_of_reach(12, 2)
    model.warn_if_out_of_reach(None, 1)
    assert not caplog.records
    model.warn_if_out_of_reach(13, 2)
    assert "with a beam of 2 nodes, at most 12 labels" in caplog.text
    assert "fix: raise -b" in caplog.text
    model.warn_if_out_of_reach(20, None)
    assert "-k 20: the model has only 14 labels" in caplog.text
    caplog.clear()
    model.warn_if_out_of_reach(16, 20, added=2)
    assert not caplog.text
    model.warn_if_out_of_reach(20, 20, added=2)
    assert "-k 20: the model has only 16 labels" in caplog.text
    model.warn_if_out_of_reach(20, 2, added=3)
    assert "with a beam of 2 nodes, at most 15 labels" in caplog.text


def test_an_xr_transformer_is_no_linear_model(tmp_path):
    (tmp_path / "params.json").write_text(json.dumps({"format": "xmc_tf.model", "version": 1, "model": "XTransformer"}))
    error = refused("is an XR-Transformer model", XRLinear.load, tmp_path)
    assert "python -m xmc_tf.predict" in str(error)


def test_a_transposed_matrix_is_named():
    Y = csr_matrix((5, 20))
    error = refused(r"Y\.npz: the matrix is transposed", check_pair, ["text"] * 20, Y, "texts", "Y.npz")
    assert "matrix.T.tocsr()" in str(error)
    refused("different numbers of documents", check_pair, ["text"] * 19, Y, "texts", "Y.npz")


def test_models_have_short_names_and_can_be_pickled():
    rng = np.random.default_rng(0)
    X = as_features(random(40, 30, 0.3, "csr", np.float32, rng))
    Y = csr_matrix((np.ones(40, np.float32), (np.arange(40), np.arange(40) % 20)))
    tree = LabelTree.from_chain([clusters_of(4), clusters_of(5, 5, 5, 5)])
    model = XRLinear.train(X, Y, tree=tree)
    model.predict(X)
    for thing in (model, model.ranker, model.ranker.levels[0], model.tree):
        assert len(repr(thing)) < 120, repr(thing)
        assert "\n" not in repr(thing)
        assert repr(thing).startswith(type(thing).__name__)
    assert "20 labels" in repr(model)
    again = pickle.loads(pickle.dumps(model))
    assert (again.predict(X) != model.predict(X)).nnz == 0
    ranker = pickle.loads(pickle.dumps(model.ranker))
    assert (ranker.predict(X) != model.ranker.predict(X)).nnz == 0


def test_an_interrupted_training_of_one_process_reports_that_nothing_was_kept(tmp_path):
    rng = np.random.default_rng(0)
    save_matrix(tmp_path / "X.npz", random(30, 20, 0.5, "csr", np.float32, rng))
    save_matrix(tmp_path / "Y.npz", random(30, 5, 0.5, "csr", np.float32, rng))
    ask = (
        "import sys, os, signal; from xmc_tf.common.process import cli; from xmc_tf.linear import train\n"
        "train.train_linear = lambda *_: os.kill(os.getpid(), signal.SIGINT)\n"
        "cli.run(train.main, sys.argv[1:])"
    )
    data = ["-x", tmp_path / "X.npz", "-y", tmp_path / "Y.npz", "-m", tmp_path / "m"]
    run = subprocess.run(
        [sys.executable, "-c", ask, *map(str, data)], capture_output=True, text=True, env=dict(os.environ), check=False
    )
    assert run.returncode == 128 + signal.SIGINT
    assert "Nothing was saved: linear training in one process" in run.stderr
    assert not (tmp_path / "m").exists()
