"""Models over several label trees: their folders, commands and exports."""

import json
import pickle
import shutil

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from tests.files import contents
from tests.linear.command_data import facts, run_predict, run_train
from tests.refusals import refused
from xmc_tf.check.model_check import check_model
from xmc_tf.common.errors import InputError
from xmc_tf.data import as_features, load_matrix, save_matrix
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.params import HierarchicalKMeansParams, XRLinearParams, several_trees
from xmc_tf.rankers.ensemble import TreeEnsemble
from xmc_tf.rankers.layout import stored
from xmc_tf.rankers.xlinear import XLinear

SHAPE = HierarchicalKMeansParams(4, max_leaf_size=3, threads=1)
FLAGS = ["--nr-splits", 4, "--max-leaf-size", 3, "-n", 1, "-b", 20]


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory):
    """Return a folder that the command has written."""
    folder = tmp_path_factory.mktemp("model") / "model"
    run_train("-x", corpus / "X.npz", "-y", corpus / "Y.npz", "-m", folder, *FLAGS, "--trees", 3)
    return folder


def test_the_first_tree_is_the_model_of_one_tree(trained, corpus, tmp_path):
    run_train("-x", corpus / "X.npz", "-y", corpus / "Y.npz", "-m", tmp_path / "one", *FLAGS)
    one, three = contents(tmp_path / "one"), contents(trained)
    assert {name: content for name, content in three.items() if not name.startswith("ensemble/")}.keys() == one.keys()
    assert all(three[name] == content for name, content in one.items() if name != "params.json")
    tree = {"nr_splits": 4, "max_leaf_size": 3, "threads": 1, "seed": 2}
    (tmp_path / "tree.json").write_text(json.dumps({"indexer_params": tree}))
    run_train(
        "-x", corpus / "X.npz", "-y", corpus / "Y.npz", "-m", tmp_path / "2", *FLAGS,
        "--params-path", tmp_path / "tree.json",
    )  # fmt: skip
    alone = contents(tmp_path / "2")
    assert all(three[f"ensemble/2/{name}"] == content for name, content in alone.items() if name != "params.json")
    assert (facts(trained)["nr_trees"], "nr_trees" in facts(tmp_path / "one")) == (3, False)


def test_the_api_a_parameter_file_and_flags_make_the_same_model(trained, corpus, tmp_path):
    X, Y = load_matrix(corpus / "X.npz"), load_matrix(corpus / "Y.npz")
    XRLinear.train(X, Y, params=XRLinearParams(tree=several_trees(SHAPE, 3)), threads=1).save(tmp_path / "api")
    blocks = [{"nr_splits": 4, "max_leaf_size": 3, "threads": 1, "seed": seed} for seed in range(3)]
    (tmp_path / "params.json").write_text(json.dumps({"indexer_params": blocks}))
    run_train(
        "-x", corpus / "X.npz", "-y", corpus / "Y.npz", "-m", tmp_path / "file",
        "--params-path", tmp_path / "params.json", "-n", 1, "-b", 20,
    )  # fmt: skip
    weights = {name: content for name, content in contents(trained).items() if name != "params.json"}
    for folder in ("api", "file"):
        assert {name: content for name, content in contents(tmp_path / folder).items() if name in weights} == weights
    assert len(facts(tmp_path / "file")["indexer_params"]) == 3


def test_predictions_are_the_mean_of_the_trees_predictions(trained, corpus, tmp_path):
    X = as_features(load_matrix(corpus / "X.npz"))
    places = [trained, trained / "ensemble/1", trained / "ensemble/2"]
    expected = sum(XLinear.load(place / "ranker").predict(X).toarray() for place in places) / 3
    model = XRLinear.load(trained)
    assert isinstance(model.ranker, TreeEnsemble)
    assert len(model.more_trees) == 2
    np.testing.assert_allclose(model.predict(X).toarray(), expected, atol=1e-6)
    run_predict("-m", trained, "-x", corpus / "X.npz", "-o", tmp_path / "p.npz")
    np.testing.assert_allclose(load_matrix(tmp_path / "p.npz").toarray(), expected, atol=1e-6)
    for copy in (pickle.loads(pickle.dumps(model)), saved(model, tmp_path / "copy")):
        assert (copy.predict(X) != model.predict(X)).nnz == 0
    assert (tmp_path / "copy" / "params.json").read_bytes() == (trained / "params.json").read_bytes()


def test_each_tree_is_mapped_from_its_layout(trained, corpus, tmp_path, monkeypatch):
    X = as_features(load_matrix(corpus / "X.npz"))
    model = XRLinear.load(trained)
    monkeypatch.setattr(stored, "FEWEST_WEIGHTS", 1)
    mapped = saved(model, tmp_path / "mapped")
    levels = [level for ranker in mapped.ranker.models for level in ranker.levels]
    assert (mapped.predict(X) != model.predict(X)).nnz == 0
    for one in (model, mapped):
        one.set_output_constraint([1, 2, 5])
    assert (mapped.predict(X) != model.predict(X)).nnz == 0
    assert not any("weights" in vars(level) for level in levels)


def saved(model, folder):
    model.save(folder)
    return XRLinear.load(folder)


def test_the_folder_is_checked_and_replaced_as_a_whole(trained, corpus, tmp_path):
    shutil.copytree(trained, tmp_path / "m")
    assert check_model(tmp_path / "m").intact
    weights = tmp_path / "m/ensemble/2/ranker/ranker/0.model/W.npz"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert not check_model(tmp_path / "m").intact
    with pytest.raises(InputError, match="ensemble/2"):
        XRLinear.load(tmp_path / "m").predict(load_matrix(corpus / "X.npz"))
    run_train("-x", corpus / "X.npz", "-y", corpus / "Y.npz", "-m", tmp_path / "m", *FLAGS)
    assert not (tmp_path / "m/ensemble").exists()


def test_trees_of_two_models_are_refused(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "m")
    content = json.loads((tmp_path / "m/params.json").read_text())
    for count in (0, "3", 101):
        (tmp_path / "m/params.json").write_text(json.dumps({**content, "nr_trees": count, "checksum": ""}))
        refused("nr_trees is", XRLinear.load, tmp_path / "m")
    shutil.rmtree(tmp_path / "m/ensemble/2")
    (tmp_path / "m/params.json").write_text(json.dumps(content))
    refused("ensemble/2", XRLinear.load, tmp_path / "m")


def test_what_belongs_to_one_tree_excludes_several(corpus, trained):
    data = ["-x", corpus / "X.npz", "-y", corpus / "Y.npz", "-m", corpus / "m", "-n", 1]
    refused("cannot be combined with several trees", run_train, *data, "--trees", 2, "-c", trained / "tree")
    negatives = corpus / "M.npz"
    save_matrix(negatives, csr_matrix(np.ones((90, 4), np.float32)))
    refused("cannot be combined with several trees", run_train, *data, "--trees", 2, "-ns", "tfn+usn", "-um", negatives)
    refused("cannot be combined", run_train, *data, "--effort", "fast", "--trees", 2)


def test_an_effort_chooses_trees_and_solver(corpus, tmp_path):
    data = ["-x", corpus / "X.npz", "-y", corpus / "Y.npz", "-n", 1]
    run_train(*data, "-m", tmp_path / "command", "--effort", "balanced")
    assert facts(tmp_path / "command")["train_params"]["hlm_args"]["model_chain"]["Cp"] == 0.5
    X, Y = load_matrix(corpus / "X.npz"), load_matrix(corpus / "Y.npz")
    model = XRLinear.train(X, Y, effort="balanced", threads=1)
    found = XRLinear.load(tmp_path / "command").predict(X)
    np.testing.assert_allclose(found.toarray(), model.predict(X).toarray(), atol=1e-6)
