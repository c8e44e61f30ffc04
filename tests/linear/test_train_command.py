"""``xmc_tf.linear.train``: all flags and parameter files."""

import json
import logging

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse import csc_matrix

from tests.linear.cases import random_chain
from tests.linear.command_data import facts, run_train
from xmc_tf.data import load_features, load_matrix, save_matrix
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.params import RankerParams
from xmc_tf.rankers.fit import train_rankers
from xmc_tf.tree import LabelTree, save_chain


@pytest.fixture
def basics(corpus, tmp_path):
    """-x, -y and -m."""
    return ["-x", corpus / "X.npz", "-y", corpus / "Y.npz", "-m", tmp_path / "m"]


def weights_of(model):
    return [level.weights.toarray() for level in model.levels]


def test_names_of_labels_come_from_a_vocabulary(basics, corpus, tmp_path):
    names = (corpus / "labels.txt").read_text(encoding="utf-8").splitlines()
    concepts = [f'<http://example.org/{number}> skos:prefLabel "{name}"@en .\n' for number, name in enumerate(names)]
    vocabulary = tmp_path / "vocabulary.ttl"
    vocabulary.write_text(f"@prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n{''.join(concepts)}", "utf-8")
    identifiers = tmp_path / "uris.txt"
    identifiers.write_text("".join(f"http://example.org/{number}\n" for number in range(len(names))), "utf-8")
    run_train(*basics, "--labels", identifiers, "--vocabulary", vocabulary, "--language", "en")
    assert (tmp_path / "m" / "labels.txt").read_text(encoding="utf-8").splitlines() == names


def test_the_folder_is_whole(model):
    top = {path.name for path in model.iterdir()}
    assert top == {"params.json", "labels.txt", "tree", "ranker"}
    said = facts(model)
    assert said["nr_documents"] == 90
    assert (said["nr_labels"], said["nr_features"], said["nr_dense"], said["seed"]) == (12, 30, 0, 0)
    assert said["indexer_params"]["nr_splits"] == 2
    assert said["train_params"]["hlm_args"]["neg_mining_chain"] == "tfn"
    assert {"python", "numpy", "numba", "xmc_tf"} <= set(said["versions"])
    assert str(model) not in (model / "params.json").read_text()  # nothing absolute
    assert LabelTree.from_chain([level.clusters for level in XRLinear.load(model).ranker.levels]).nr_labels == 12


def test_a_number_after_t_is_a_threshold(basics, tmp_path):
    run_train(*basics, "-t", "0.05")
    assert facts(tmp_path / "m")["train_params"]["hlm_args"]["model_chain"]["threshold"] == 0.05
    data = XRLinear.load(tmp_path / "m").ranker.levels[-1].weights.data
    assert 0.05 <= np.abs(data).min() < 0.1


def test_both_meanings_of_t_at_once(corpus, tmp_path):
    run_train("-t", corpus / "X.txt", "-y", corpus / "Y.npz", "-m", tmp_path / "m", "-t", "0.25")
    assert facts(tmp_path / "m")["train_params"]["hlm_args"]["model_chain"]["threshold"] == 0.25
    assert XRLinear.load(tmp_path / "m").reads_text
    assert facts(tmp_path / "m")["tfidf_params"]["ngram_max"] == 2


def test_flags_reach_the_parameters(basics, tmp_path):
    run_train(
        *basics, "-s", "L2R_LR_DUAL", "--Cp", 2, "--Cn", 0.5, "--bias", 0, "-ns", "tfn+man", "-z", 3, "-b", 4,
        "-k", 7, "-pp", "sigmoid", "-n", 1, "--max-leaf-size", 3, "--nr-splits", 2, "--seed", 5,
    )  # fmt: skip
    said = facts(tmp_path / "m")
    level = said["train_params"]["hlm_args"]["model_chain"]
    assert (level["solver_type"], level["Cp"], level["Cn"], level["bias"]) == ("L2R_LR_DUAL", 2, 0.5, 0)
    assert said["train_params"]["hlm_args"]["neg_mining_chain"] == "tfn+man"
    assert said["seed"] == 5
    ranker = XRLinear.load(tmp_path / "m").ranker
    assert ranker.depth == 3
    assert [level.pred_params.only_topk for level in ranker.levels] == [4, 4, 7]
    assert {level.pred_params.post_processor for level in ranker.levels} == {"sigmoid"}
    assert max(np.diff(ranker.levels[-1].weights.indptr)) == 3
    assert ranker.levels[0].weights.shape[0] == 30


def test_a_tree_in_a_folder_and_in_one_matrix(basics, corpus, tmp_path):
    """A folder may number its nodes in any order; levels are added above a matrix."""
    chain = random_chain(12, [2, 5], seed=4)
    save_matrix(tmp_path / "leaves.npz", chain[-1])
    for t, clusters in enumerate(chain):
        (tmp_path / "tree").mkdir(exist_ok=True)
        save_matrix(tmp_path / "tree" / f"C{t}.npz", clusters)
    (tmp_path / "tree" / "config.json").write_text('{"len": 3}')
    parents = {}
    for given in ("tree", "leaves.npz"):
        run_train(*basics, "-c", tmp_path / given, "--nr-splits", 2, "--min-codes", 2)
        ranker = XRLinear.load(tmp_path / "m").ranker
        parents[given] = ranker.levels[-1].clusters.toarray()
        together = parents[given] @ parents[given].T
        np.testing.assert_array_equal(together, (chain[-1] @ chain[-1].T).toarray())
        assert ranker.depth == (3 if given == "tree" else 4)
    run_train(*basics, "--code-path", tmp_path / "m" / "tree")  # our own folder, which is replaced meanwhile
    np.testing.assert_array_equal(XRLinear.load(tmp_path / "m").ranker.levels[-1].clusters.toarray(), parents[given])


def test_negatives_of_clusters_are_those_of_the_trees_own_columns(basics, corpus, tmp_path):
    """Reading a tree may renumber its clusters; the user's columns are renumbered with them."""
    chain = random_chain(12, [2, 5], seed=4)
    save_chain(tmp_path / "tree", chain)  # by node, not by position
    for t, clusters in enumerate(chain):
        save_matrix(tmp_path / "tree" / f"C{t}.npz", clusters)
    matched = csc_matrix((np.random.default_rng(1).random((90, 5)) < 0.3).astype(np.float32))
    save_matrix(tmp_path / "M.npz", matched)
    run_train(*basics, "-c", tmp_path / "tree", "-um", tmp_path / "M.npz", "-ns", "usn")
    X, Y = load_features([corpus / "X.npz"]), load_matrix(corpus / "Y.npz")
    params = RankerParams.from_json({"hlm_args": {"neg_mining_chain": "usn"}})
    ours = train_rankers(X, Y, chain, params=params, user_negatives={1: matched})
    model = XRLinear.load(tmp_path / "m").ranker
    np.testing.assert_array_equal(model.levels[-1].weights.toarray(), ours.levels[-1].weights.toarray())


def test_negatives_of_labels_and_relevance_are_taken(basics, corpus, tmp_path, caplog):
    def weights(*flags):
        run_train(*basics, "-c", corpus / "C.npz", *flags)
        return weights_of(XRLinear.load(tmp_path / "m").ranker)[-1]

    plain = weights()
    save_matrix(tmp_path / "M.npz", sp.csr_matrix(np.ones((90, 12), np.float32)))
    assert not np.array_equal(weights("-uy", tmp_path / "M.npz", "-ns", "usn+tfn"), plain)
    assert not np.array_equal(weights("-r", corpus / "R.npz", "--rel-mode", "induce", "--rel-norm", "l1"), plain)
    assert "has no effect" not in caplog.text
    np.testing.assert_array_equal(weights("-r", corpus / "R.npz"), plain)
    assert "R.npz has no effect without --rel-mode" in caplog.text


def test_a_parameter_file_in_pecos_format(basics, tmp_path, caplog):
    """It replaces the defaults of flags for the blocks that it contains; flags that are given replace its values."""
    level = {"__meta__": {"class_fullname": "pecos.xmc.base###MLModel.PredParams"}, "post_processor": "sigmoid"}
    (tmp_path / "p.json").write_text(
        json.dumps({
            "__meta__": {"class_fullname": "x"},
            "train_params": {
                "mode": "full-model",
                "hlm_args": {"neg_mining_chain": ["tfn", "tfn+man"], "model_chain": {"Cp": 3, "threshold": 0.01}},
            },
            "pred_params": {"hlm_args": {"model_chain": [{**level, "only_topk": 2}, {**level, "only_topk": 3}]}},
        })
    )  # fmt: skip
    run_train(*basics, "--params-path", tmp_path / "p.json", "--max-leaf-size", 6)
    said, ranker = facts(tmp_path / "m"), XRLinear.load(tmp_path / "m").ranker
    assert said["train_params"]["hlm_args"]["model_chain"]["Cp"] == 3
    assert said["train_params"]["hlm_args"]["neg_mining_chain"] == ["tfn", "tfn+man"]
    assert [level.pred_params.only_topk for level in ranker.levels] == [2, 3]
    assert {level.pred_params.post_processor for level in ranker.levels} == {"sigmoid"}
    assert said["indexer_params"]["max_leaf_size"] == 6
    assert ranker.depth == 2
    caplog.set_level(logging.INFO)
    run_train(*basics, "--params-path", tmp_path / "p.json", "--max-leaf-size", 6, "--Cp", 9, "-k", 4, "-t", 0.2)
    said, ranker = facts(tmp_path / "m"), XRLinear.load(tmp_path / "m").ranker
    assert [said["train_params"]["hlm_args"]["model_chain"][name] for name in ("Cp", "threshold")] == [9, 0.2]
    assert [level.pred_params.only_topk for level in ranker.levels] == [2, 4]
    assert {level.pred_params.post_processor for level in ranker.levels} == {"sigmoid"}
    for line in ("--Cp 9.0 replaces 3 of", "--threshold 0.2 replaces 0.01 of", "--only-topk 4 replaces 3 of"):
        assert line in caplog.text


def test_a_shallow_tree(basics, corpus, tmp_path):
    (tmp_path / "p.json").write_text('{"train_params": {"shallow": true}}')
    depths = []
    for more in ([], ["--params-path", tmp_path / "p.json"]):
        run_train(*basics, "-c", corpus / "C.npz", "--nr-splits", 2, *more)
        depths.append(XRLinear.load(tmp_path / "m").ranker.depth)
    assert depths == [4, 2]


def test_a_parameter_file_says_what_features_are_made(corpus, tmp_path, capsys):
    run_train("--generate-params-skeleton")
    filled = json.loads(capsys.readouterr().out)
    filled["tfidf_params"] |= {"ngram_max": 1, "min_df": 1, "language": "none", "piece_weight": 0.5}
    (tmp_path / "p.json").write_text(json.dumps(filled))
    texts = ("-t", corpus / "X.txt", "-y", corpus / "Y.npz", "-m", tmp_path / "m")
    run_train(*texts, "--params-path", tmp_path / "p.json")
    assert facts(tmp_path / "m")["tfidf_params"] == filled["tfidf_params"]


def test_text_in_names_out(text_model, corpus):
    model = XRLinear.load(text_model)
    assert model.reads_text
    parts = {"params.json", "labels.txt", "tree", "features", "ranker", "documents"}
    assert {path.name for path in text_model.iterdir()} == parts
    ((best, score), *_), (other, *_) = model.best(["the library libraries", b"a kitchen kitchens"], k=3)
    assert best == "library 1"
    assert other[0] == "kitchen 1"
    assert 0 < score <= 1
