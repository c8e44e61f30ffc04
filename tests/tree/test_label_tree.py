"""The label tree: its checks, its levels, PECOS's shapes, and its form as matrices."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csc_matrix, csr_matrix

from tests.refusals import refused
from tests.tree.cases import trees
from xmc_tf.tree import LabelTree
from xmc_tf.tree.label_tree import binary_depth, half_bounds, upper_splits

TREE = LabelTree(splits=([0, 2], [0, 2, 5]), labels=[1, 4, 0, 2, 3])


def matrix(parents, nr_parents):
    """Return the matrix in which child i has parent ``parents[i]``."""
    rows = np.arange(len(parents))
    return csc_matrix((np.ones(len(parents), np.float32), (rows, parents)), shape=(len(parents), nr_parents))


def test_sizes_children_parents_and_paths():
    assert TREE.depth == 2
    assert TREE.nr_labels == 5
    assert TREE.level_sizes == (1, 2, 5)
    assert TREE.children(0, 0) == range(2)
    assert TREE.children(1, 1) == range(2, 5)
    assert TREE.parent(2, 1) == 0
    assert TREE.parent(2, 2) == 1
    assert TREE.parent(1, 1) == 0
    assert TREE.path(4) == (0, 0)
    assert TREE.path(3) == (0, 1)
    assert TREE.labels_under(1, 0).tolist() == [1, 4]
    assert TREE.labels_under(0, 0).tolist() == [1, 4, 0, 2, 3]
    assert TREE.labels.tolist() == [1, 4, 0, 2, 3]
    assert TREE.inverse.tolist() == [2, 0, 3, 4, 1]
    assert repr(TREE) == "LabelTree(1 > 2 > 5)"


def test_levels_can_be_left_out_above():
    assert TREE.under_one_root(1) == TREE
    flat = TREE.under_one_root(2)
    assert flat.level_sizes == (1, 5)
    assert flat.labels.tolist() == [0, 1, 2, 3, 4]
    deep = LabelTree(splits=([0, 2], [0, 1, 3], [0, 1, 2, 4]), labels=[3, 1, 0, 2]).under_one_root(2)
    assert deep == LabelTree(splits=([0, 3], [0, 1, 2, 4]), labels=[3, 1, 0, 2])


def test_nobody_can_change_it_and_the_callers_array_stays_writable():
    for array in (TREE.labels, TREE.splits[0], TREE.inverse, TREE.node_order[0]):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    labels = np.array([0, 1, 2])
    LabelTree(splits=([0, 3],), labels=labels)
    labels[0] = 7
    assert labels[0] == 7


@settings(max_examples=50)
@given(trees())
def test_matrices_and_back(tree):
    chain = tree.to_chain()
    assert [C.shape for C in chain] == list(zip(tree.level_sizes[1:], tree.level_sizes[:-1], strict=True))
    assert all(C.format == "csc" and C.dtype == np.float32 and C.has_sorted_indices for C in chain)
    again = LabelTree.from_chain(chain)
    assert again == tree
    assert all(np.array_equal(order, np.arange(order.size)) for order in again.node_order)


@settings(max_examples=50)
@given(trees(), st.randoms(use_true_random=False))
def test_any_numbering_of_nodes_is_the_same_tree_up_to_the_order_of_siblings(tree, random):
    names = [[0]] + [random.sample(range(size), size) for size in tree.level_sizes[1:-1]]
    chain = tree.to_chain()
    shuffled = []
    for t, C in enumerate(chain):
        rows, columns = C.nonzero()
        parents = np.array(names[t])[columns]
        children = rows if t == tree.depth - 1 else np.array(names[t + 1])[rows]
        ones = np.ones(rows.size, np.float32)
        shuffled.append(csr_matrix((ones, (children, parents)), shape=C.shape))
    read = LabelTree.from_chain(shuffled)
    assert read.level_sizes == tree.level_sizes
    for label in range(tree.nr_labels):
        # Each node of the path, under the name that it has in the shuffled chain.
        found = [int(read.node_order[t][node]) for t, node in enumerate(read.path(label))]
        assert found == [names[t][node] for t, node in enumerate(tree.path(label))]
    # What `order_of` is for: the rows of each foreign matrix, brought into the order of the tree, are our own matrix.
    for t, (foreign, own) in enumerate(zip(shuffled, read.to_chain(), strict=True)):
        if t < tree.depth - 1:
            assert (foreign[read.order_of(t + 1)][:, read.order_of(t)] != own).nnz == 0
        else:
            assert (foreign[:, read.order_of(t)] != own).nnz == 0


def test_foreign_chains_with_zeros_doubled_entries_and_other_types():
    C = csc_matrix((np.array([1.0, 0.0, 5.0]), np.array([0, 1, 1]), np.array([0, 2, 3])), shape=(2, 2))
    tree = LabelTree.from_chain([csr_matrix(np.ones((2, 1), np.int64)), C])
    assert tree == LabelTree(splits=([0, 2], [0, 1, 2]), labels=[0, 1])
    assert C.nnz == 3  # the caller's matrix is left alone


def test_a_chain_with_shared_memory_is_left_alone():
    C = csc_matrix((np.ones(3, np.float32), np.array([2, 0, 1]), np.array([0, 3])), shape=(3, 1))
    LabelTree.from_chain([C])
    assert C.indices.tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    ("chain", "message"),
    [
        ([], "cluster chain is empty"),
        ([matrix([0, 1], 2)], "does not start with one root"),
        ([matrix([0, 0], 1), matrix([0, 0, 2], 3)], "matrices 0 and 1 of the cluster chain do not fit"),
        ([matrix([0, 0], 1), matrix([0, 1], 2) * 0], "label 0 has no parent in matrix 1"),
        ([csc_matrix([[1.0], [0.0]]), matrix([0, 1], 2)], "node 1 of level 1 has no parent in matrix 0"),
        ([matrix([0, 0], 1), csc_matrix([[1.0, 0.0], [1.0, 1.0]])], "label 1 has 2 parents in matrix 1"),
        ([np.ones((2, 1))], "matrix 0 of the cluster chain is not sparse"),
    ],
)
def test_bad_chains_are_named(chain, message):
    refused(message, LabelTree.from_chain, chain)


@pytest.mark.parametrize(
    ("splits", "labels", "message"),
    [
        ((), [], "tree is empty"),
        (([0, 0],), [], "tree is empty"),
        (([0, 1, 2],), [0, 1], "does not start with one root"),
        (([0, 2], [0, 2, 4]), [0, 1, 2], "splits of level 1 do not cover"),
        (([0, 2], [0, 2, 1]), [0], "splits of level 1 do not cover"),
        (([0, 2], [1, 2, 3]), [0, 1, 2], "splits of level 1 do not cover"),
        (([0, 3],), [0, 1, 1], "label 2 is not in the tree"),
        (([0, 3],), [0, 1, 3], "label 2 is not in the tree"),
        (([0, 3],), [-1, 0, 1], "label 2 is not in the tree"),
        (([0, 2], [0, 1, 3]), [0, 2, 1], "labels of leaf cluster 1 are not in ascending order"),
        (([0, 2],), [0.0, 1.0], "labels of the tree are not a list of whole numbers"),
        (([[0, 2]],), [0, 1], "splits of level 0 are not a list of whole numbers"),
    ],
)
def test_what_is_no_tree_is_refused(splits, labels, message):
    refused(message, LabelTree, splits=splits, labels=labels)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: TREE.children(2, 0), "no such level"),
        (lambda: TREE.children(1, 2), "level 1 of the tree has no node 2"),
        (lambda: TREE.children(1, -1), "level 1 of the tree has no node -1"),
        (lambda: TREE.parent(0, 0), "the root has no parent"),
        (lambda: TREE.parent(3, 0), "no such level"),
        (lambda: TREE.path(5), "no label 5"),
        (lambda: TREE.labels_under(0, 1), "level 0 of the tree has no node 1"),
        (lambda: TREE.order_of(3), "no such level"),
        (lambda: TREE.under_one_root(0), r"no such level(.|\n)*1 to 2"),
        (lambda: LabelTree(([0, 2], [0, 1, 2]), [0, 1], node_order=([0], [0])), "node order does not fit"),
    ],
)
def test_what_is_not_in_the_tree_raises_an_error(ask, message):
    refused(message, ask)


def test_trees_differ_by_labels_and_by_splits():
    assert LabelTree(splits=([0, 2], [0, 2, 5]), labels=[0, 4, 1, 2, 3]) != TREE
    assert LabelTree(splits=([0, 2], [0, 3, 5]), labels=[0, 1, 4, 2, 3]) != TREE
    assert LabelTree(splits=([0, 5],), labels=[0, 1, 2, 3, 4]) != TREE
    assert TREE != "tree"


# (labels, nr_splits, max_leaf_size, min_codes) -> nodes of each level below the root, the labels last; as libpecos
# 1.2.8 makes them.
SHAPES = {
    (1, 16, 100, None): [1],
    (100, 16, 100, None): [100],
    (101, 16, 100, None): [2, 101],
    (1000, 16, 100, None): [16, 1000],
    (1000, 2, 100, None): [2, 4, 8, 16, 1000],
    (1000, 3, 100, None): [2, 6, 16, 1000],
    (1000, 8, 100, None): [2, 16, 1000],
    (1000, 16, 100, 1): [16, 1000],
    (1000, 2, 100, 5): [4, 8, 16, 1000],
    (5000, 16, 100, None): [4, 64, 5000],
    (5000, 16, 100, 32): [4, 64, 5000],
    (5000, 16, 100, 128): [64, 5000],
    (5000, 8, 16, 128): [64, 512, 5000],
    (4096, 16, 1, None): [16, 256, 4096, 4096],
    (4096, 64, 1, 2): [64, 4096, 4096],
    (16481, 16, 100, None): [16, 256, 16481],
    (2617, 16, 100, None): [2, 32, 2617],
}


def level_sizes(labels, nr_splits, max_leaf_size, min_codes):
    leaves = 2 ** binary_depth(labels, max_leaf_size)
    return [int(splits[-1]) for splits in upper_splits(leaves, nr_splits, min_codes)] + [labels]


@pytest.mark.parametrize(("case", "sizes"), SHAPES.items())
def test_shapes_are_those_of_pecos(case, sizes):
    assert level_sizes(*case) == sizes


@given(st.integers(1, 5000), st.integers(1, 200))
def test_leaves_are_full_enough_and_not_too_full(labels, max_leaf_size):
    sizes = np.diff(half_bounds(labels, binary_depth(labels, max_leaf_size)))
    assert sizes.sum() == labels
    assert sizes.min() >= 1
    assert sizes.max() - sizes.min() <= 1
    assert sizes.max() <= max(max_leaf_size, 2)


@given(st.integers(1, 600), st.integers(2, 70), st.none() | st.integers(1, 700))
def test_levels_cover_one_another(leaves, nr_splits, min_codes):
    levels = upper_splits(leaves, nr_splits, min_codes)
    nodes = 1
    for t, splits in enumerate(levels):
        assert splits[0] == 0
        assert splits.size == nodes + 1
        children = np.diff(splits)
        assert children.min() >= 1
        assert t == 0 or children.max() <= nr_splits
        nodes = int(splits[-1])
    assert nodes == leaves
