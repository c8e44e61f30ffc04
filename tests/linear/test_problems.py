"""Labels, negatives and costs of each level, compared with examples calculated by hand."""

import numpy as np
import pytest
from scipy.sparse import csc_matrix, csr_matrix

from tests.linear.cases import features, label_matrix, pred_params, random_chain, ranker_params
from tests.refusals import refused
from xmc_tf.rankers.fit import train_rankers
from xmc_tf.rankers.problems import cost_chain, label_chain, matched_documents, user_matching

# Four labels in two clusters, {0, 2} and {1, 3}; three documents.
CHAIN = [
    csc_matrix(np.ones((2, 1), np.float32)),
    csc_matrix(np.array([[1, 0], [0, 1], [1, 0], [0, 1]], np.float32)),
]
Y = csc_matrix(np.array([[1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 1, 1]], np.float32))
R = csc_matrix(np.array([[1, 0, 3, 0], [0, 5, 0, 0], [0, 0, 2, 6]], np.float32))


def dense(chain):
    return [None if matrix is None else matrix.toarray().tolist() for matrix in chain]


def test_labels_of_every_level():
    assert dense(label_chain(Y, CHAIN)) == [[[2, 0], [0, 1], [1, 1]], Y.toarray().tolist()]
    assert all(level.has_sorted_indices for level in label_chain(Y.tocsr(), CHAIN))


@pytest.mark.parametrize(
    ("norm", "clusters", "labels"),
    [
        ("no-norm", [[4, 0], [0, 5], [2, 6]], R.toarray().tolist()),
        ("l1", [[1, 0], [0, 1], [0.25, 0.75]], [[0.25, 0, 0.75, 0], [0, 1, 0, 0], [0, 0, 0.25, 0.75]]),
        (
            "l2",
            [[1, 0], [0, 1], [1 / 10**0.5, 3 / 10**0.5]],
            [[1 / 10**0.5, 0, 3 / 10**0.5, 0], [0, 1, 0, 0], [0, 0, 1 / 10**0.5, 3 / 10**0.5]],
        ),
        ("max", [[1, 0], [0, 1], [1 / 3, 1]], [[1 / 3, 0, 1, 0], [0, 1, 0, 0], [0, 0, 1 / 3, 1]]),
    ],
)
def test_costs_of_every_level(norm, clusters, labels):
    induced = cost_chain(Y, R, CHAIN, "induce", norm)
    np.testing.assert_allclose(induced[0].toarray(), clusters, rtol=1e-6)
    np.testing.assert_allclose(induced[1].toarray(), labels, rtol=1e-6)
    alone = cost_chain(Y, R, CHAIN, "ranker-only", norm)
    assert alone[0] is None
    np.testing.assert_allclose(alone[1].toarray(), labels, rtol=1e-6)
    assert R.max() == 6  # the user's matrix is left alone


def test_costs_without_relevance_count_labels():
    assert dense(cost_chain(2 * Y, None, CHAIN, "induce", "no-norm")) == dense(label_chain(Y, CHAIN))
    assert cost_chain(Y, None, CHAIN, "ranker-only", "l1") == [None, None]
    assert cost_chain(Y, R, CHAIN, "disable", "l1") == [None, None]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (R[:2], "2 × 4"),
        (csc_matrix(np.eye(3, 4, dtype=np.float32)), "3 entries in a matrix of 3 × 4"),
        (-R, "negative entries"),
        # The same documents in the same order, but of other labels.
        (csc_matrix((R.data, R.indices, [0, 1, 3, 4, 5]), shape=R.shape), "does not match the labels"),
    ],
)
def test_relevance_that_is_not_of_these_labels(wrong, words):
    caught = refused("relevance", cost_chain, Y, csc_matrix(wrong), CHAIN, "induce", "l1")
    assert words in str(caught)


TEACHER, PREDICTED, USER = (
    csc_matrix(np.array(rows, np.float32))
    for rows in ([[2, 0], [0, 1], [1, 1]], [[0.5, 0.1], [0.2, 0], [0, 0]], [[0, 0], [0, 0], [-1, 1]])
)


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        ("tfn", [[1, 0], [0, 1], [1, 1]]),
        ("man", [[1, 1], [1, 0], [0, 0]]),
        ("usn", [[0, 0], [0, 0], [1, 1]]),
        ("usn+tfn", [[1, 0], [0, 1], [1, 1]]),
        ("tfn+man", [[1, 1], [1, 1], [1, 1]]),
        ("usn+man", [[1, 1], [1, 0], [1, 1]]),
        ("usn+tfn+man", [[1, 1], [1, 1], [1, 1]]),
    ],
)
def test_negatives_are_sums_of_schemes(scheme, expected):
    matched = matched_documents(scheme, TEACHER, PREDICTED.tocsr(), USER)
    assert (matched.toarray() != 0).tolist() == (np.array(expected) != 0).tolist()
    assert matched.has_sorted_indices


def test_without_user_negatives_none_match():
    assert matched_documents("usn+man", TEACHER, None, None).nnz == 0


def test_user_negatives_reach_the_parents_and_all_above():
    """Negatives of labels mark the labels' clusters; negatives of clusters mark these; both mark the root."""
    for_labels = csr_matrix(np.array([[0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]], np.float32))
    for_clusters = csr_matrix(np.array([[0, -1], [1, 0], [0, 0]], np.float32))
    assert user_matching(None, CHAIN) == [None, None]
    assert dense(user_matching({0: for_labels}, CHAIN)) == [[[1], [0], [0]], [[0, 1], [0, 0], [0, 0]]]
    assert dense(user_matching({1: for_clusters}, CHAIN)) == [[[1], [1], [0]], [[0, 1], [1, 0], [0, 0]]]
    both = user_matching({0: for_labels, 1: for_clusters}, CHAIN)
    assert (both[1].toarray() > 0).tolist() == [[False, True], [True, False], [False, False]]
    assert dense(user_matching({2: csr_matrix((3, 1)), 0: None}, CHAIN)) == [[[0], [0], [0]], None]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({1: csr_matrix((3, 4))}, ["height 1", "2 columns", "4 columns"]),
        ({0: csr_matrix((3, 2))}, ["4 columns", "2 columns"]),
        ({3: csr_matrix((3, 1))}, ["height 3", "from 0 (labels) to 2"]),
        ({0: csr_matrix((3, 4)), 1: csr_matrix((5, 2))}, ["number of rows", "3, 5"]),
    ],
)
def test_user_negatives_that_do_not_fit(given, words):
    refused(words, user_matching, given, CHAIN)


def weights(model):
    return [level.weights.toarray() for level in model.levels]


def test_a_list_gives_each_level_its_own_negatives():
    """Level 1 after "man" differs from "tfn"; level 2, again "tfn", does not see how level 1 was trained."""
    X, labels = features("sparse", 60), label_matrix(60, 40)
    chain = random_chain(40, [3, 12])

    def trained(schemes):
        return weights(train_rankers(X, labels, chain, params=ranker_params(schemes, threshold=0.0), threads=2))

    plain, mixed = trained("tfn"), trained(["tfn", "tfn+man", "tfn"])
    np.testing.assert_array_equal(mixed[0], plain[0])
    assert not np.array_equal(mixed[1], plain[1])
    np.testing.assert_array_equal(mixed[2], plain[2])
    last = trained(["tfn", "tfn", "tfn+man"])
    np.testing.assert_array_equal(last[1], plain[1])
    assert not np.array_equal(last[2], plain[2])


def test_man_learns_from_what_the_upper_levels_predict():
    """With a beam over all nodes, every document is a negative everywhere; with a beam of one, as predicted."""
    X, labels = features("sparse", 40), label_matrix(40, 20)
    chain = random_chain(20, [5])
    everywhere = csc_matrix(np.ones((40, 5), np.float32))
    params = ranker_params("tfn+man", threshold=0.0)
    by_man = train_rankers(X, labels, chain, params=params, pred_params=pred_params("noop", 5), threads=1)
    by_user = train_rankers(
        X, labels, chain, params=ranker_params("tfn+usn", threshold=0.0), user_negatives={1: everywhere}, threads=1
    )
    np.testing.assert_array_equal(weights(by_man)[1], weights(by_user)[1])
    narrow = train_rankers(X, labels, chain, params=params, pred_params=pred_params("noop", 1), threads=1)
    top = type(narrow)(narrow.levels[:1], narrow.nr_sparse).predict(X, only_topk=1)
    by_user = train_rankers(
        X, labels, chain, params=ranker_params("tfn+usn", threshold=0.0), user_negatives={1: top}, threads=1
    )
    np.testing.assert_array_equal(weights(narrow)[1], weights(by_user)[1])


@pytest.mark.parametrize(
    ("schemes", "fitting"),
    [(["tfn", "tfn", "tfn+man"], ["tfn", "tfn+man"]), (["tfn+man"], ["tfn+man", "tfn+man"])],
)
def test_a_list_of_another_length_than_the_tree_counts_from_the_labels_up(schemes, fitting):
    X, Y, chain = features("sparse", 30), label_matrix(30, 6), random_chain(6, [2])
    ours, theirs = (
        weights(train_rankers(X, Y, chain, params=ranker_params(one, threshold=0.0), threads=1))
        for one in (schemes, fitting)
    )
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other)


def test_features_and_labels_of_other_documents():
    refused("different numbers of documents", train_rankers, features("sparse", 9), label_matrix(8, 6))
