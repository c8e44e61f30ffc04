"""Hierarchical 2-means: halve the labels repeatedly into a balanced tree of similar labels."""

import numpy as np
from scipy.sparse import sparray, spmatrix

from xmc_tf.common.errors import InputError
from xmc_tf.common.progress import Progress
from xmc_tf.data.features import Features, as_features
from xmc_tf.params import HierarchicalKMeansParams
from xmc_tf.tree.grouping import binary_depth, half_bounds, upper_splits
from xmc_tf.tree.kmeans_levels import BinaryLevel, first_level
from xmc_tf.tree.kmeans_nodes import split_nodes
from xmc_tf.tree.kmeans_wide import WideNode, split_wide
from xmc_tf.tree.label_tree import LabelTree
from xmc_tf.tree.threads import ThreadPool, even_cuts

# For nodes with fewer entries, synchronizing all threads after every step costs more than it saves.
WIDE_ENTRIES = 400_000


def build_tree(
    embeddings: spmatrix | sparray | np.ndarray | Features, params: HierarchicalKMeansParams | None = None
) -> LabelTree:
    """Build the label tree from label embeddings by balanced hierarchical 2-means.

    Each node is split exactly in half: its labels are sorted by how much nearer they are to one centroid than to the
    other. The binary levels are then grouped by ``nr_splits`` and ``min_codes``. Labels with an empty embedding are
    distributed evenly. The tree depends on the seed, not on the number of threads.

    Example:
        >>> tree = build_tree(label_embedding("pifa", X, Y), HierarchicalKMeansParams(max_leaf_size=100))

    Args:
        embeddings: one row per label: sparse, dense, or both side by side.
        params: the clustering parameters; None: the defaults.

    Returns:
        The tree. No leaf is empty: with ``max_leaf_size=1`` and a number of labels that is not a power of two, leaves
        hold one or two labels.

    Raises:
        InputError: there are no labels, or an embedding holds NaN or infinity.
    """
    params = params or HierarchicalKMeansParams()
    features = as_features(embeddings)
    nr_labels = features.nr_rows
    if nr_labels == 0:
        raise InputError(
            "there are no labels to build a tree from", expected="at least one embedding", received="0 rows"
        )
    depth = binary_depth(nr_labels, params.max_leaf_size)
    order = _halve_all(features, depth, params) if depth else np.arange(nr_labels)
    return tree_of_order(order, depth, params)


def tree_of_order(order: np.ndarray, depth: int, params: HierarchicalKMeansParams) -> LabelTree:
    """Return the tree over labels in the order of their ``2**depth`` leaves."""
    bounds = half_bounds(order.size, depth)
    leaf = np.repeat(np.arange(bounds.size - 1), np.diff(bounds))
    upper = upper_splits(bounds.size - 1, params.nr_splits, params.min_codes)
    return LabelTree(splits=(*upper, bounds), labels=order[np.lexsort((order, leaf))])


def _halve_all(features: Features, depth: int, params: HierarchicalKMeansParams) -> np.ndarray:
    """Return the labels in the order of the ``2**depth`` leaves."""
    left = np.empty(features.nr_rows, np.bool_)
    with (
        ThreadPool(params.threads) as pool,
        Progress("clustering the labels", total=features.nr_rows * depth, unit="steps") as progress,
    ):
        level = first_level(features, pool)
        for t in range(depth):
            seeds = node_seeds(params.seed, t, level.nr_nodes)
            split_level(level, sample_rate(params, t, depth), seeds, params, pool, left)
            level.halve(left)
            if worth_renumbering(t, depth):
                level.drop_unshared(pool)
            progress.add(features.nr_rows)
    return level.entries.order


def node_seeds(seed: int, level: int, nr_nodes: int) -> np.ndarray:
    """Return a random state for each node, which depends only on the seed and the node's place."""
    return np.random.SeedSequence([seed, level]).generate_state(nr_nodes, np.uint64)


def worth_renumbering(level: int, depth: int) -> bool:
    """Return whether the features of a level are renumbered after its split.

    Renumbering saves on the next level about what it costs, and pays off on the two after it. Sums follow the order of
    the numbers, so all ways to build a tree renumber at the same levels.
    """
    return level % 2 == 1 and level < depth - 1


def sample_rate(params: HierarchicalKMeansParams, level: int, depth: int) -> float:
    """Return the share of a node's labels from which its centroids are computed.

    The first ``warmup_ratio`` of the levels use ``min_sample_rate``. From there the rate rises in equal steps to
    ``max_sample_rate`` at the last level.

    Args:
        params: the rates; without ``do_sample`` all labels are used.
        level: the binary level, 0 for the root.
        depth: number of binary levels.

    Returns:
        The rate of that level.
    """
    if not params.do_sample:
        return 1.0
    warmup = int(params.warmup_ratio * depth)
    if level < warmup:
        return params.min_sample_rate
    step = (params.max_sample_rate - params.min_sample_rate) / (depth - warmup)
    return params.min_sample_rate + step * (level + 1 - warmup)


def split_level(
    level: BinaryLevel, rate: float, seeds: np.ndarray, params: HierarchicalKMeansParams, pool: ThreadPool,
    left: np.ndarray,
) -> None:  # fmt: skip
    """Decide for each label of a level whether it goes left.

    Args:
        level: the nodes.
        rate: the share of a node's labels from which its centroids are computed.
        seeds: the random state of each node.
        params: the clustering parameters.
        pool: the threads.
        left: receives the result.
    """
    before = level.work_before()
    # Both branches compute the same steps on the same numbers; they differ in which thread does what.
    entries, spherical, rounds = level.entries, params.spherical, params.kmeans_max_iter
    shares = _shares(level, rate)
    if level.nr_nodes >= pool.threads or before[-1] <= WIDE_ENTRIES * level.nr_nodes:
        pool.run(
            lambda first, last: split_nodes(
                first, last, level.starts, level.empties, level.widths, shares, seeds, entries, spherical, rounds, left
            ),
            even_cuts(before, pool.parts),
        )
        return
    for node in range(level.nr_nodes):
        one = WideNode(
            start=int(level.starts[node]),
            stop=int(level.starts[node + 1]),
            empty=int(level.empties[node]),
            width=int(level.widths[node]),
            share=int(shares[node]),
            seed=seeds[node : node + 1],
        )
        split_wide(entries, one, spherical, rounds, pool, left)


def _shares(level: BinaryLevel, rate: float) -> np.ndarray:
    """Return for each node the number of labels from which its centroids are computed."""
    filled = level.filled
    return np.minimum(filled, np.maximum(2, np.ceil(rate * filled).astype(np.int64)))
