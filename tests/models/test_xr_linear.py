"""XRLinear trained in Python."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from tests.files import contents
from tests.linear.command_data import run_train
from tests.refusals import refused
from xmc_tf.common.errors import InputError
from xmc_tf.data import TextFile, load_matrix, load_names
from xmc_tf.metrics import evaluate
from xmc_tf.models import labels as reading
from xmc_tf.models.xr_linear import XRLinear
from xmc_tf.params import HierarchicalKMeansParams, LinearChainParams, LinearLevelParams, RankerParams, XRLinearParams
from xmc_tf.tables.label_forms import read_labels
from xmc_tf.tree.kmeans import build_tree

PARAMS = XRLinearParams(
    RankerParams(nr_splits=4, hlm_args=LinearChainParams(model_chain=LinearLevelParams(threads=1))),
    tree=HierarchicalKMeansParams(4, max_leaf_size=3, threads=1),
)


def test_the_api_makes_the_files_that_the_command_makes(corpus, tmp_path):
    """Of texts, with label names as evidence, and of features; with labels as a matrix and by name."""
    Y, names = load_matrix(corpus / "Y.npz"), load_names(corpus / "labels.txt")
    by_name = [[names[label] for label in row.indices] for row in Y.tocsr()]
    flags = ["-y", corpus / "Y.npz", "--labels", corpus / "labels.txt", "--nr-splits", 4, "--max-leaf-size", 3, "-n", 1]
    for flag, path, documents in (
        ("-t", corpus / "X.txt", TextFile(corpus / "X.txt")),
        ("-x", corpus / "X.npz", load_matrix(corpus / "X.npz")),
    ):
        evidence = ["--label-names", flag == "-t"]
        run_train(flag, path, "-m", tmp_path / "command", *flags, "-b", 20, *evidence)
        expected = contents(tmp_path / "command")
        for number, labels in enumerate((Y, by_name)):
            # The command keeps PECOS's scores of features.
            kept = {} if flag == "-t" else {"probabilities": False}
            model = XRLinear.train(documents, labels, names=names, params=PARAMS, threads=1, **kept)
            model.save(tmp_path / f"api {number}")
            assert contents(tmp_path / f"api {number}") == expected


def test_a_tree_or_features_of_the_labels_may_be_given(corpus):
    X, Y = load_matrix(corpus / "X.npz"), load_matrix(corpus / "Y.npz")
    Z = np.eye(12, dtype=np.float32)[np.random.default_rng(3).permutation(12)]
    tree = build_tree(Z, PARAMS.tree)
    assert XRLinear.train(X, Y, tree=tree, params=PARAMS).tree == tree
    assert XRLinear.train(X, Y, tree=Z, params=PARAMS, threads=2).tree == tree
    assert XRLinear.train(X, Y, params=PARAMS).tree != tree
    refused(r"the label features and the labels do not fit together\n.*12 .*\n.*11", XRLinear.train, X, Y, tree=Z[:11])
    with pytest.raises(InputError, match=r"the tree and the labels do not fit together"):
        XRLinear.train(X, csr_matrix((90, 5), dtype=np.float32) + Y[:, :5], tree=tree)


def test_evaluate_takes_labels_as_train_does(corpus):
    texts, Y, names = TextFile(corpus / "X.txt"), load_matrix(corpus / "Y.npz"), load_names(corpus / "labels.txt")
    by_name = [[names[label] for label in row.indices] for row in Y.tocsr()]
    model = XRLinear.train(texts, by_name, names=names, params=PARAMS)
    found = model.evaluate(texts, by_name, rows="all")
    assert found.ks == (1, 3, 5, 10)
    expected = evaluate(Y, model.predict(texts, only_topk=12), ks=(1, 3, 5, 10))
    assert str(found) == str(expected) == str(model.evaluate(texts, Y, rows="all"))
    assert model.evaluate(texts, Y, ks=[3], rows="all").at("R", 3) == expected.at("R", 3)
    refused("different numbers of documents", model.evaluate, texts, Y[:5])
    refused("the cut-offs k are invalid", model.evaluate, texts, Y, ks=[])


def test_inputs_that_do_not_fit(corpus):
    texts, Y = TextFile(corpus / "X.txt"), load_matrix(corpus / "Y.npz")
    for documents in (texts[:80], load_matrix(corpus / "X.npz")[:80]):
        refused("different numbers of documents", XRLinear.train, documents, Y)
    refused("12 labels", XRLinear.train, texts, Y, names=["too", "few"])


def label_matrix(labels, names=None):
    return reading.label_matrix(read_labels(labels), names)


def test_names_are_sorted_or_in_the_order_that_is_given():
    documents = [["roses", "food"], [], ("kitchen", "kitchen")]
    Y, names = label_matrix(documents)
    assert names == ["food", "kitchen", "roses"]
    assert Y.toarray().tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    assert (Y.dtype, Y.format) == (np.float32, "csr")
    Y, names = label_matrix(documents, ["roses", "unused", "kitchen", "food"])
    assert names == ["roses", "unused", "kitchen", "food"]
    assert Y.toarray().tolist() == [[1, 0, 0, 1], [0, 0, 0, 0], [0, 0, 1, 0]]


@pytest.mark.parametrize(
    ("labels", "names", "message"),
    [
        ([["food"], ["rosse"]], ["food", "roses"], r"document 1 has an unknown label: 'rosse'\n.*\n.*mean 'roses'\?"),
        ([["food"], ["x"]], ["food", "roses"], "add it to names, or remove it"),
        ([["food"]], ["food", "roses", "food"], "contain 'food' more than once"),
        ([["two\nlines"]], None, "label name 0 cannot be used"),
        ([["food"]], ["food", " "], "label name 1 cannot be used"),
    ],
)
def test_labels_that_cannot_be_used(labels, names, message):
    refused(message, label_matrix, labels, names)
