"""Balanced 2-means: every label once, exact halves, and a fixed point."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix, vstack

from tests.refusals import refused
from tests.tree.cases import dense, embeddings, sparse
from xmc_tf.data.features import Features, as_features
from xmc_tf.params import HierarchicalKMeansParams
from xmc_tf.tree.kmeans import build_tree, sample_rate
from xmc_tf.tree.pecos_names import Indexer, LabelEmbeddingFactory

KINDS = ["sparse", "dense", "both"]


def params(**given):
    return HierarchicalKMeansParams(**{"max_leaf_size": 5, "threads": 1, **given})


def as_array(given):
    """Return all features of the labels, side by side, in double precision."""
    features = as_features(given)
    parts = [] if features.sparse is None else [features.sparse.toarray()]
    parts += [] if features.dense is None else [features.dense]
    return np.hstack(parts).astype(np.float64)


def leaf_sets(tree):
    return [tree.labels_under(tree.depth - 1, node).tolist() for node in range(tree.level_sizes[-2])]


def binary_nodes(tree):
    """Yield the labels of each pair of siblings of a tree with two children per node."""
    for level in range(tree.depth - 1):
        for node in range(tree.level_sizes[level]):
            left, right = tree.children(level, node)
            yield tree.labels_under(level + 1, left), tree.labels_under(level + 1, right)


def towards_left(features, left, right, spherical):
    """Return how much nearer each label is to the left centroid than to the right one, computed from scratch."""
    a, b = features[left].sum(axis=0), features[right].sum(axis=0)
    if spherical:
        a, b = a / max(np.linalg.norm(a), 1e-30), b / max(np.linalg.norm(b), 1e-30)
    else:
        a, b = a / left.size, b / right.size
    return features[left] @ (a - b), features[right] @ (a - b)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spherical", [True, False])
def test_halves_stay_as_they_are_when_sorted_again(kind, spherical):
    """The definition of the result, without any of the ways in which it is found faster."""
    given = embeddings(kind, 300, seed=300)
    tree = build_tree(given, params(nr_splits=2, spherical=spherical, kmeans_max_iter=200))
    features = as_array(given)
    filled = np.any(features != 0, axis=1)
    for left, right in binary_nodes(tree):
        left, right = left[filled[left]], right[filled[right]]
        if left.size and right.size:
            near, far = towards_left(features, left, right, spherical)
            assert near.min() >= far.max() - 1e-5


@settings(max_examples=40)
@given(
    rows=st.integers(1, 70),
    leaf=st.integers(1, 20),
    nr_splits=st.integers(2, 9),
    kind=st.sampled_from(KINDS),
    density=st.sampled_from([0.0, 0.02, 0.2]),
    seed=st.integers(0, 3),
)
def test_every_label_once_and_siblings_of_equal_size(rows, leaf, nr_splits, kind, density, seed):
    part = sparse(rows, density=density, seed=seed)
    given = {"sparse": part, "dense": dense(rows), "both": Features(part, dense(rows))}[kind]
    tree = build_tree(given, params(max_leaf_size=leaf, nr_splits=nr_splits, seed=seed))
    assert sorted(tree.labels.tolist()) == list(range(rows))
    sizes = np.diff(tree.splits[-1])
    assert sizes.min() >= 1
    assert sizes.max() - sizes.min() <= 1
    assert sizes.max() <= max(leaf, 2)
    binary = build_tree(given, params(max_leaf_size=leaf, nr_splits=2, seed=seed))
    assert all(abs(left.size - right.size) <= 1 for left, right in binary_nodes(binary))
    # Grouping changes the levels above the leaves only.
    assert leaf_sets(binary) == leaf_sets(tree)


def test_the_seed_decides():
    given = sparse(200)
    assert build_tree(given, params(seed=1)) == build_tree(given, params(seed=1))
    assert build_tree(given, params(seed=1)) != build_tree(given, params(seed=2))


@pytest.mark.parametrize("kind", KINDS)
def test_clusters_that_are_there_are_found(kind):
    rng = np.random.default_rng(3)
    topic = rng.permutation(np.repeat(np.arange(4), 25))
    near = np.eye(4, dtype=np.float32)[topic]
    noise = 0.1 * rng.random((100, 4)).astype(np.float32)
    given = {
        "sparse": csr_matrix(near + noise),
        "dense": near + noise,
        "both": Features(csr_matrix(near), noise),
    }[kind]
    tree = build_tree(given, params(max_leaf_size=25))
    assert {frozenset(topic[leaf].tolist()) for leaf in leaf_sets(tree)} == {frozenset([i]) for i in range(4)}


def test_labels_without_features_are_spread_evenly():
    rng = np.random.default_rng(0)
    empty = np.zeros(64, bool)
    empty[rng.choice(64, 21, replace=False)] = True
    given = sparse(64, density=0.5).toarray()
    given[empty] = 0
    tree = build_tree(csr_matrix(given), params(max_leaf_size=8))
    counts = [int(empty[leaf].sum()) for leaf in leaf_sets(tree)]
    assert len(counts) == 8
    assert max(counts) - min(counts) <= 1


def test_entries_that_are_zero_are_no_features():
    part = sparse(40, density=0.5)
    part.data[part.indptr[3] : part.indptr[9]] = 0
    without = part.copy()
    without.eliminate_zeros()
    assert build_tree(part, params()) == build_tree(without, params())


@pytest.mark.parametrize("number", [0, 1])
def test_labels_that_are_all_alike_are_split_by_their_number(number):
    tree = build_tree(np.full((8, 3), number, np.float32), params(max_leaf_size=2))
    assert tree.labels.tolist() == list(range(8))


def test_opposite_labels_whose_sums_cancel():
    given = np.array([[1, 0], [-1, 0], [1, 0], [-1, 0]], np.float32)
    assert sorted(build_tree(given, params(max_leaf_size=2)).labels.tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize("factor", [1e-25, 1e25])
def test_the_unit_of_the_features_does_not_matter(factor):
    part = sparse(120, density=0.3)
    scaled = part.copy()
    scaled.data = (scaled.data.astype(np.float64) * factor).astype(np.float32)
    # Scaling rounds, which could turn a tie: the leaves must be as good, and with numbers of two digits are the same.
    part.data, scaled.data = np.ceil(part.data * 4), np.ceil(part.data * 4) * np.float32(factor)
    same = [build_tree(given, params(kmeans_max_iter=50)) for given in (part, scaled)]
    assert same[0].level_sizes == same[1].level_sizes
    assert _cohesion(part, same[1]) > 0.95 * _cohesion(part, same[0])


def _cohesion(given, tree):
    """Return the mean cosine between a label and the centroid of its leaf."""
    features = as_array(given)
    features /= np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-30)
    return sum(np.linalg.norm(features[leaf].sum(axis=0)) for leaf in leaf_sets(tree)) / len(features)


@pytest.mark.parametrize("kind", KINDS)
def test_samples_find_nearly_as_good_leaves(kind):
    given = embeddings(kind, 600)
    full = build_tree(given, params(max_leaf_size=20))
    some = build_tree(given, params(max_leaf_size=20, do_sample=True, min_sample_rate=0.3))
    assert some != full
    assert _cohesion(given, some) > 0.9 * _cohesion(given, full)


def test_sampling_rates_begin_low_and_end_high():
    given = params(do_sample=True, min_sample_rate=0.2, max_sample_rate=0.8, warmup_ratio=0.4)
    rates = [sample_rate(given, level, 5) for level in range(5)]
    assert rates == pytest.approx([0.2, 0.2, 0.4, 0.6, 0.8])
    assert [sample_rate(params(), level, 5) for level in range(5)] == [1.0] * 5
    always_low = params(do_sample=True, min_sample_rate=0.2, warmup_ratio=1.0)
    assert [sample_rate(always_low, level, 3) for level in range(3)] == [0.2] * 3


def test_what_the_caller_gave_is_left_alone_and_may_be_read_only():
    given = sparse(90)
    for array in (given.data, given.indices, given.indptr):
        array.flags.writeable = False
    values = given.data.copy()
    tree = build_tree(given, params())
    assert np.array_equal(given.data, values)
    wide = given.copy()
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    assert build_tree(wide, params()) == tree


def test_columns_beyond_two_billion_are_renumbered():
    given = sparse(60)
    far = csr_matrix((60, 2**33), dtype=np.float32)
    far.data, far.indptr, far.indices = given.data, given.indptr.astype(np.int64), given.indices + np.int64(2**32)
    assert leaf_sets(build_tree(far, params())) == leaf_sets(build_tree(given, params()))


def test_no_labels_are_refused():
    refused("no labels to build a tree from", build_tree, np.zeros((0, 3), np.float32))


@pytest.mark.parametrize("number", [np.nan, np.inf])
@pytest.mark.parametrize("where", ["sparse", "dense"])
def test_numbers_that_are_none_are_named_with_their_label(number, where):
    part, full = sparse(30, density=0.5), dense(30)
    if where == "sparse":
        part.data[part.indptr[7]] = number
    else:
        full[7, 2] = number
    refused(f"embedding of label 7 holds {number}", build_tree, Features(part, full), params())


def test_many_equal_blocks_do_not_hang_the_selection():
    given = vstack([sparse(3, density=0.9)] * 200).tocsr()
    assert build_tree(given, params()).nr_labels == 600


def test_scripts_of_pecos_find_its_names():
    """``from xmc_tf import Indexer, LabelEmbeddingFactory`` in the place of ``from pecos.xmc import …``."""
    X, Y = sparse(60, seed=1), csr_matrix(sparse(60, 20, seed=2) > 0, dtype=np.float32)
    Z = LabelEmbeddingFactory.create(Y, X, method="pifa")
    rows = Y.multiply(1 / np.maximum(np.sqrt(Y.multiply(Y).sum(axis=1)), 1e-9))
    sums = (rows.T @ X).toarray()
    norms = np.linalg.norm(sums, axis=1, keepdims=True)
    assert np.allclose(Z.toarray(), np.divide(sums, norms, out=np.zeros_like(sums), where=norms > 0), atol=1e-6)
    C = Indexer.gen(Z, indexer_type="hierarchicalkmeans", nr_splits=4, max_leaf_size=3, seed=3)
    assert [one.shape[0] for one in C][-1] == 20
    assert all((one.sum(axis=1) == 1).all() for one in C)  # each node has one parent
    assert max(np.bincount(C[-1].tocsr().indices)) <= 3
    tree = build_tree(Z, params(nr_splits=4, max_leaf_size=3, seed=3))
    assert all((a != b).nnz == 0 for a, b in zip(C, tree.to_chain(), strict=True))
    refused("nr_split", Indexer.gen, Z, nr_split=4)
    refused("indexer_type is unknown", Indexer.gen, Z, indexer_type="kmeans")
    refused("unknown label embedding", LabelEmbeddingFactory.create, Y, X, method="pifa_lf_concat")
