"""Contributions of a document's features to the scores of the nodes on the path to a label."""

from dataclasses import dataclass

import numpy as np

from xmc_tf.data.features import Features
from xmc_tf.rankers.kernels.postprocess import chain, neutral, post_processor_code, squash
from xmc_tf.rankers.xlinear import XLinear


@dataclass(frozen=True, eq=False)
class NodeContributions:
    """The score of one node on the path, and the contributions that add up to ``raw``."""

    level: int  # 0 below the root
    node: int  # number of the node at its level; on the last level, the label
    raw: float  # before the post-processor
    score: float  # after the post-processor, combined with that of the parent
    features: np.ndarray  # sparse features of the document that have a weight, ascending
    weights: np.ndarray
    values: np.ndarray  # their values in the document
    dense: float  # sum of the contributions of all dense features
    bias: float  # contribution of the constant feature


def contributions(ranker: XLinear, X: Features, label: int) -> list[NodeContributions]:
    """Return the nodes on the path to a label, from the top down, and the contributions of one document's features."""
    found: list[NodeContributions] = []
    for number, (level, node) in enumerate(zip(ranker.levels, path_to(ranker, label), strict=True)):
        code = post_processor_code(level.pred_params.post_processor)
        column = slice(*level.weights.indptr[node : node + 2])
        rows, weights = level.weights.indices[column], level.weights.data[column].astype(np.float64)
        bias = float(level.bias * weights[rows == level.nr_features].sum()) if level.bias > 0 else 0.0
        dense, features, own, values = 0.0, np.zeros(0, np.int64), np.zeros(0), np.zeros(0)
        if X.dense is not None:
            inside = (rows >= X.nr_sparse) & (rows < X.nr_features)
            dense = float(weights[inside] @ X.dense[0][rows[inside] - X.nr_sparse].astype(np.float64))
        if X.sparse is not None:
            features, at, of_values = np.intersect1d(rows, X.sparse[0].indices, return_indices=True)
            own, values = weights[at], X.sparse[0].data[of_values].astype(np.float64)
        raw = float(own @ values) + dense + bias
        parent = found[-1].score if found else float(neutral(code))
        score = float(chain(code, squash(code, raw), parent))
        found.append(NodeContributions(number, node, raw, score, features, own, values, dense, bias))
    return found


def path_to(ranker: XLinear, label: int) -> list[int]:
    """Return the nodes on the path to a label, from the top down."""
    nodes = [label]
    for level in reversed(ranker.levels[1:]):
        place = int(np.flatnonzero(level.clusters.indices == nodes[-1])[0])
        nodes.append(int(np.searchsorted(level.clusters.indptr, place, side="right")) - 1)
    return nodes[::-1]


def labels_below(ranker: XLinear, level: int, node: int) -> np.ndarray:
    """Return the labels below a node; ``level`` 0 is the first level below the root."""
    nodes = np.array([node])
    for clusters in (below.clusters for below in ranker.levels[level + 1 :]):
        nodes = np.concatenate([clusters.indices[clusters.indptr[one] : clusters.indptr[one + 1]] for one in nodes])
    return nodes
