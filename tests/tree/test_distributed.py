"""The tree of any number of threads and ranks is that of one thread; ranks are threads of this process here."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from tests.collective.threads import on_ranks, results_of
from tests.linear.cases import features, label_matrix
from tests.refusals import refused
from tests.tree.cases import embeddings
from xmc_tf.data import Features, as_features
from xmc_tf.params import HierarchicalKMeansParams
from xmc_tf.tree import kmeans, label_embeddings
from xmc_tf.tree.kmeans import build_tree
from xmc_tf.tree.label_embeddings import label_embedding, label_embeddings_over_ranks


def params(**given):
    return HierarchicalKMeansParams(**{"max_leaf_size": 5, "nr_splits": 4, "threads": 1, **given})


def trees(ranks, given, wanted, threads=1, **more):
    return results_of(on_ranks(ranks, lambda one: build_tree(as_features(given), wanted, one, threads=threads, **more)))


@settings(max_examples=25)
@given(
    kind=st.sampled_from(["sparse", "dense", "both"]),
    rows=st.integers(2, 700),
    columns=st.sampled_from([8, 100, 600, 5000]),  # of more than 4,096 features, sums are made in blocks
    threads=st.lists(st.integers(1, 6), min_size=1, max_size=3),  # of each rank
    wide_entries=st.sampled_from([-1, 100, kmeans.WIDE_ENTRIES]),
    changes=st.sampled_from([{}, {"do_sample": True}, {"spherical": False}, {"max_leaf_size": 1}]),
    seed=st.integers(0, 1000),
)
def test_the_tree_of_one_thread(kind, rows, columns, threads, wide_entries, changes, seed):
    # Labels with few features of equal weight are about as near to the one half as to the other: any rounding decides.
    rng = np.random.default_rng(seed)
    part = csr_matrix((np.ones(5 * rows, np.float32), (columns * rng.random(5 * rows) ** 2).astype(np.int32),
                       np.arange(0, 5 * rows + 1, 5)), (rows, columns))  # fmt: skip
    part.sum_duplicates()
    full = rng.integers(0, 2, (rows, 37)).astype(np.float32)
    features = {"sparse": as_features(part), "dense": as_features(full), "both": Features(part, full)}[kind]
    wanted = params(seed=seed, **changes)
    expected = build_tree(features, wanted)

    def build(one):
        return build_tree(features, wanted, one, threads=threads[one.rank], wide_entries=wide_entries)

    assert all(tree == expected for tree in results_of(on_ranks(len(threads), build)))


def test_labels_without_features_and_sizes_that_do_not_divide():
    given = csr_matrix(embeddings("sparse", 101, seed=1).multiply((np.arange(101) % 7 > 0)[:, None]))
    given.eliminate_zeros()
    expected = build_tree(given, params(max_leaf_size=2))
    for ranks in (2, 3, 4):
        assert trees(ranks, given, params(max_leaf_size=2))[-1] == expected


def test_other_embeddings_within_the_sub_trees():
    X, Y = features("both", 120), label_matrix(120, 200)
    pifa, pii = (as_features(label_embedding(method, X, Y)) for method in ("pifa", "pii"))
    wanted, found = params(), []
    for ranks in (1, 2, 3):
        found += trees(ranks, pii, wanted, sub_embeddings=lambda: pifa, min_n_sub_tree=4)
    assert all(tree == found[0] for tree in found)
    upper, all_pii = found[0], build_tree(pii, wanted)
    # Four sub-trees: the first two halvings are those of the one embedding, and those below are of the other.
    quarter = [set(upper.labels[: len(upper.labels) // 4]), set(all_pii.labels[: len(all_pii.labels) // 4])]
    assert quarter[0] == quarter[1]
    assert found[0] != all_pii
    same = trees(2, pifa, wanted, sub_embeddings=lambda: pifa, min_n_sub_tree=1)
    assert same[0] == build_tree(pifa, wanted)


@pytest.mark.parametrize("kind", ["sparse", "dense", "both"])
@pytest.mark.parametrize("method", ["pifa", "pii"])
def test_label_embeddings_of_one_process(kind, method, tmp_path, monkeypatch):
    X, Y = features(kind, 60), label_matrix(60, 40)
    monkeypatch.setattr(label_embeddings, "DOCUMENT_PIECE_ENTRIES", 7)
    monkeypatch.setattr(label_embeddings, "PIECE_ENTRIES", 1)
    Y = Y.multiply(np.linspace(0.3, 2, 40)[None, :]).tocsc()
    expected = as_features(label_embedding(method, X, Y, threads=1))
    for ranks in (1, 3):
        (tmp_path / str(ranks)).mkdir()

        def make(communicator, folder=tmp_path / str(ranks)):
            made = label_embeddings_over_ranks(communicator, method, X, Y, folder, 1)
            return made, label_embeddings_over_ranks(communicator, method, X, Y, folder, 1)

        for made in [one for pair in results_of(on_ranks(ranks, make)) for one in pair]:
            assert (made.sparse is None, made.dense is None) == (expected.sparse is None, expected.dense is None)
            if made.sparse is not None:
                assert made.sparse.data.tobytes() == expected.sparse.data.tobytes()
                assert np.array_equal(made.sparse.indices, expected.sparse.indices)
                assert np.array_equal(made.sparse.indptr, expected.sparse.indptr)
            if made.dense is not None:
                assert made.dense.tobytes() == expected.dense.tobytes()


def test_no_sub_tree_is_refused():
    refused("min_n_sub_tree", trees, 1, embeddings("sparse", 20), params(), min_n_sub_tree=0)
