"""How deep trees are and how their levels are grouped: PECOS's shapes, pinned."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xmc_tf.tree.label_tree import binary_depth, half_bounds, upper_splits

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
