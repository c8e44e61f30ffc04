"""The paths from the root to some labels: a restricted model, and selected labels in the order of their scoring."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csc_matrix, csr_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.rankers.level import Level


def checked_labels(labels: Iterable[int], nr_labels: int) -> np.ndarray:
    """Return label numbers in ascending order, each once; InputError if there are none, or one does not exist."""
    numbers = np.asarray(labels if isinstance(labels, np.ndarray) else list(labels))
    if numbers.size == 0:
        raise InputError("no labels are given to predict", expected="at least one label number")
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise InputError(
            "the labels to predict are not label numbers", expected="a list of whole numbers",
            received=f"an array of {numbers.dtype}, shape {numbers.shape}",
        )  # fmt: skip
    if numbers.min() < 0 or numbers.max() >= nr_labels:
        wrong = numbers[(numbers < 0) | (numbers >= nr_labels)][0]
        raise InputError(
            f"label {wrong} does not exist in this model", expected=f"label numbers from 0 to {nr_labels - 1:,}",
            received=str(wrong),
        )  # fmt: skip
    return np.unique(numbers).astype(np.int64)


def restricted(levels: Sequence[Level], labels: np.ndarray) -> list[Level]:
    """Return the levels with only the nodes that lead to ``labels``; numbers stay, and the weights are shared."""
    kept = np.zeros(levels[-1].clusters.shape[0], bool)
    kept[labels] = True
    out: list[Level] = []
    for level in reversed(levels):
        clusters = level.clusters
        entries = kept[clusters.indices]
        counted = np.concatenate([[0], np.cumsum(entries)])
        indptr = counted[clusters.indptr].astype(clusters.indptr.dtype)
        pruned = csc_matrix((clusters.data[entries], clusters.indices[entries], indptr), shape=clusters.shape)
        out.insert(0, dataclasses.replace(level, clusters=pruned))
        kept = np.diff(indptr) > 0
    return out


class Paths(NamedTuple):
    """The nodes of all levels on the paths to the selected labels, the top level first."""

    indptr: np.ndarray  # (levels, queries + 1): position of each query's first node of a level in the arrays below
    node: np.ndarray  # number of the node within its level
    chunk: np.ndarray  # chunk that contains the node's weights; nodes of the same chunk follow each other
    child: np.ndarray  # position of the node in that chunk
    parent: np.ndarray  # position of the node's parent in these arrays; -1 for the root


def selected_paths(levels: Sequence[Level], selected: csr_matrix, arranged: Sequence[Level]) -> Paths:
    """Return the selected labels' ancestors, each once per query; ``arranged``: the levels in the chunks."""
    nr_queries = selected.shape[0]
    query = np.repeat(np.arange(nr_queries), np.diff(selected.indptr))
    keys = np.unique(query * np.int64(selected.shape[1]) + selected.indices)
    nodes_below = [(keys // selected.shape[1], keys % selected.shape[1])]
    parent_rank: list[np.ndarray] = []
    for level in reversed(levels):
        query, node = nodes_below[0]
        parent_of, _ = _places(level)
        if (outside := node[parent_of[node] < 0]).size:
            raise InputError(
                f"label {outside[0]:,} is not in the tree"
                if level is levels[-1]
                else "a label's cluster is not in the tree",
                expected="labels that the model can predict",
                fix="remove it from the selected outputs; this model was pruned",
            )  # fmt: skip
        above = query * np.int64(level.clusters.shape[1]) + parent_of[node]
        keys, rank = np.unique(above, return_inverse=True)
        parent_rank.insert(0, rank)
        nodes_below.insert(0, (keys // level.clusters.shape[1], keys % level.clusters.shape[1]))
    parts: list[tuple[np.ndarray, ...]] = []
    indptr = np.zeros((len(levels), nr_queries + 1), np.int64)
    level_start = np.cumsum([0, *(level.clusters.shape[1] for level in levels)])
    offset, places_above = 0, np.full(len(nodes_below[0][0]), -1, np.int64)
    for t in range(len(levels)):
        query, node = nodes_below[t + 1]
        parent_of, child_of = _places(arranged[t])
        order = np.lexsort((child_of[node], parent_of[node], query))
        places = np.empty(len(order), np.int64)
        places[order] = offset + np.arange(len(order))
        indptr[t] = offset + np.searchsorted(query[order], np.arange(nr_queries + 1))
        chunk, parent = level_start[t] + parent_of[node][order], places_above[parent_rank[t]][order]
        parts.append((node[order], chunk, child_of[node][order], parent))
        places_above, offset = places, offset + len(order)
    return Paths(indptr, *(np.concatenate(column) for column in zip(*parts, strict=True)))


def _places(level: Level) -> tuple[np.ndarray, np.ndarray]:
    """Return each node's parent and its position among its siblings; -1 for nodes outside the tree."""
    clusters, counts = level.clusters, np.diff(level.clusters.indptr)
    parent, child = (np.full(clusters.shape[0], -1, np.int64) for _ in range(2))
    parent[clusters.indices] = np.repeat(np.arange(clusters.shape[1]), counts)
    child[clusters.indices] = np.arange(len(clusters.indices)) - np.repeat(clusters.indptr[:-1], counts)
    return parent, child
