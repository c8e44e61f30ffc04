"""Labels of each level of the tree: equal to products with the tree's matrices."""

import numpy as np
from hypothesis import given
from scipy.sparse import csr_matrix

from tests.matcher.trees import random_matrix, random_tree, worlds
from tests.refusals import refused
from xmc_tf.matcher.tasks import levels_of
from xmc_tf.tree import LabelTree

TREE = LabelTree(splits=([0, 2], [0, 2, 5]), labels=[1, 4, 0, 2, 3])


def products(tree, values):
    """Return the values of every level by multiplication, the top first; the last in the order of the tree."""
    levels = [values.tocsc()[:, tree.labels]]
    below = values
    for clusters in reversed(tree.to_chain()[1:]):
        below = below @ clusters
        levels.insert(0, below)
    return [level.toarray() for level in levels]


def ones(matrix):
    return (matrix > 0).astype(np.float32)


@given(world=worlds)
def test_equal_to_products_with_the_matrices_of_the_tree(world):
    seed, depth, density = world
    tree = random_tree(seed, depth)
    R = random_matrix(seed, 9, tree.nr_labels, density)
    counts = products(tree, ones(R))
    for weights, expected in [(True, counts), (False, [ones(level) for level in counts])]:
        tasks = levels_of(tree, R, max_match_clusters=10**9, weights=weights)
        assert [task.level for task in tasks] == list(range(1, depth + 1))
        for task, values in zip(tasks, expected, strict=True):
            np.testing.assert_array_equal(task.targets.toarray(), values)
            assert task.targets.dtype == np.float32
            assert task.targets.has_canonical_format
            assert task.targets.data.all()
            assert task.nr_nodes == tree.level_sizes[task.level]
            assert task.nr_parents == tree.level_sizes[task.level - 1]
            np.testing.assert_array_equal(task.splits, tree.splits[task.level - 1])


def test_zeros_are_no_labels_and_duplicates_count_once():
    parts = np.array([0.0, 1.0, 1.0]), np.array([0, 1, 1]), np.array([0, 3, 3, 3])
    (top, labels) = levels_of(TREE, csr_matrix(parts, shape=(3, 5)), max_match_clusters=5, weights=True)
    assert top.targets.toarray().tolist() == [[1, 0], [0, 0], [0, 0]]
    assert labels.targets.nnz == 1


def test_levels_that_are_too_large_are_left_out():
    tree = random_tree(3, depth=3, largest=6, empty=False)
    labels = csr_matrix((2, tree.nr_labels), dtype=np.float32)
    for deepest in (1, 2, 3):
        size = tree.level_sizes[deepest]
        assert [task.level for task in levels_of(tree, labels, max_match_clusters=size)][-1] == deepest
    refused(f"max_match_clusters=0.*\n.*{tree.level_sizes[1]}\n.*raise", levels_of, tree, labels, max_match_clusters=0)
