"""Parts of a model: the paths to some labels, the sub-tree below a node, and a model joined from sub-models."""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
from scipy.sparse import csc_matrix, hstack

from xmc_tf.common.errors import InputError
from xmc_tf.rankers.level import Level


def checked_labels(labels: Iterable[int], nr_labels: int) -> np.ndarray:
    """Return label numbers in ascending order, each once.

    Raises:
        InputError: if there are none, or one is not the number of a label.
    """
    numbers = np.asarray(labels if isinstance(labels, np.ndarray) else list(labels))
    if numbers.size == 0:
        raise InputError("no labels are given to predict", expected="at least one label number")
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise InputError(
            "the labels to predict are not label numbers",
            expected="a list of whole numbers",
            received=f"an array of {numbers.dtype}, shape {numbers.shape}",
        )
    if numbers.min() < 0 or numbers.max() >= nr_labels:
        wrong = numbers[(numbers < 0) | (numbers >= nr_labels)][0]
        raise InputError(
            f"label {wrong} does not exist in this model",
            expected=f"label numbers from 0 to {nr_labels - 1:,}",
            received=str(wrong),
        )
    return np.unique(numbers).astype(np.int64)


def restricted(levels: Sequence[Level], labels: np.ndarray) -> list[Level]:
    """Return the levels with only the nodes that lead to ``labels``; the numbers of nodes and labels stay.

    The result shares its weights with ``levels``.
    """
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


def sub_model(levels: Sequence[Level], level: int, node: int) -> tuple[list[Level], np.ndarray]:
    """Return the levels of the sub-tree below a node, and the label of ``levels`` that each of its labels is."""
    nodes_above = levels[level].clusters.shape[1] if 0 <= level < len(levels) else 0
    if not 0 <= node < nodes_above:
        raise InputError(
            f"level {level} of the model has no node {node} above it",
            expected=f"a level from 0 to {len(levels) - 1}, and a number of one of its parents"
            + (f", from 0 to {nodes_above - 1:,}" if nodes_above else ""),
        )
    parents, out = np.array([node]), []
    for whole in levels[level:]:
        block = whole.clusters[:, parents]
        children = np.unique(block.indices)
        if not len(children):
            raise InputError(f"no label lies below node {node} above level {level}", expected="a node with labels")
        rows = np.searchsorted(children, block.indices)
        clusters = csc_matrix((block.data, rows, block.indptr), shape=(len(children), len(parents)))
        out.append(dataclasses.replace(whole, stored=csc_matrix(whole.weights[:, children]), clusters=clusters))
        parents = children
    return out, parents


def split_at(levels: Sequence[Level], level: int) -> tuple[list[Level], list[tuple[list[Level], np.ndarray]]]:
    """Return the levels above ``level``, and for each node there the levels below it with their labels."""
    if not 0 < level < len(levels):
        raise InputError(
            f"the model cannot be split at level {level}",
            expected=f"a level from 1 to {len(levels) - 1}: both parts need a level",
            received=str(level),
        )
    return list(levels[:level]), [sub_model(levels, level, node) for node in range(levels[level].clusters.shape[1])]


def joined(top: Sequence[Level], children: Sequence[tuple[Sequence[Level], np.ndarray]]) -> list[Level]:
    """Return the levels in which node ``i`` above the labels of ``children[i]`` is label ``i`` of ``top``.

    The opposite of :func:`split_at`. Biases and prediction parameters are those of ``top`` and of the first child.
    """
    nr_nodes = top[-1].clusters.shape[0]
    if len(children) != nr_nodes:
        raise InputError(
            "the sub-models do not fit the model above them",
            expected=f"{nr_nodes:,}, one for each of its labels",
            received=f"{len(children):,}",
        )
    parts, labels = [levels for levels, _ in children], [np.asarray(own, np.int64) for _, own in children]
    depth, nr_features = len(parts[0]), top[0].nr_features
    for number, (levels, own) in enumerate(zip(parts, labels, strict=True)):
        found, nr_labels = (len(levels), levels[0].nr_features, len(own)), levels[-1].clusters.shape[0]
        if found != (depth, nr_features, nr_labels):
            raise InputError(
                f"sub-model {number} does not fit the others",
                expected=f"{depth} levels, {nr_features:,} features, {nr_labels:,} label numbers",
                received=f"{found[0]} levels, {found[1]:,} features, {found[2]:,} label numbers",
            )
    order = np.concatenate(labels)
    if not np.array_equal(np.sort(order), np.arange(len(order))):
        raise InputError(
            "the label numbers of the sub-models are incomplete",
            expected=f"each number from 0 to {len(order) - 1:,} once",
        )
    out = list(top)
    for t, first in enumerate(parts[0]):
        these = [levels[t] for levels in parts]
        weights = csc_matrix(hstack([one.weights for one in these], format="csc"))
        clusters = _side_by_side([one.clusters for one in these])
        if t == depth - 1:
            weights = csc_matrix(weights[:, np.argsort(order)])
            clusters = csc_matrix((clusters.data, order[clusters.indices], clusters.indptr), shape=clusters.shape)
        out.append(dataclasses.replace(first, stored=weights, clusters=clusters))
    return out


def _side_by_side(clusters: Sequence[csc_matrix]) -> csc_matrix:
    """Cluster matrices along the diagonal; the order of the children in a cluster stays."""
    rows, columns = (sum(one.shape[axis] for one in clusters) for axis in (0, 1))
    first = np.cumsum([0, *(one.shape[0] for one in clusters)])
    indices = np.concatenate([one.indices + begin for one, begin in zip(clusters, first, strict=False)])
    indptr = np.concatenate([[0], np.cumsum(np.concatenate([np.diff(one.indptr) for one in clusters]))])
    return csc_matrix((np.concatenate([one.data for one in clusters]), indices, indptr), shape=(rows, columns))
