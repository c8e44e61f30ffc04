"""Estimates for the features, the label tree and the linear rankers."""

from typing import NamedTuple

import numpy as np

from xmc_tf.plan.sizes import DataSizes, Machines
from xmc_tf.plan.stage import StageEstimate, size
from xmc_tf.rankers.kernels.lanes import WIDTH
from xmc_tf.rankers.tasks import cut_clusters
from xmc_tf.tree.grouping import binary_depth, half_bounds, upper_splits
from xmc_tf.tree.label_embeddings import MANY_ENTRIES, STRONGEST

# Seconds of one core, measured on 7,534 and on 153,161 library records.
_A_FEATURE_ENTRY = 1e-6
_A_TREE_ENTRY = 2e-8
_A_SUMMED_ENTRY = 9e-8
_DIFFERENT = 0.75  # share of a label's feature entries that are distinct
_UNITS_A_SECOND = 7e6  # work of the solvers on one core
# Cost of a dense entry relative to a sparse one: 384 dense columns beside 41 sparse entries took 2.4 times as long.
_DENSE_ENTRY = 0.15
# Weights of all levels per feature of a label's documents, measured with the default threshold.
_WEIGHTS_AN_ENTRY = 0.75
_RANGE_BYTES = 3e8  # of label embeddings that a thread sums at a time
# Bytes per level and label of a document: labels, matched documents, and the orders in which they are read.
_A_LABEL_OF_A_LEVEL = 12


def features(data: DataSizes, machines: Machines) -> StageEstimate:
    """Estimate TF-IDF: each rank counts the words of its own documents."""
    entries = data.documents * data.entries
    return StageEstimate(
        "TF-IDF",
        memory=entries / machines.ranks * 16 + data.features * 200,
        on_device=False,
        sent=data.features * 24.0 if machines.ranks > 1 else 0.0,
        seconds=entries * _A_FEATURE_ENTRY / (machines.ranks * machines.cores_per_rank),
        detail=f"{size(entries * 8)} of features on the shared folder",
    )


def tree(data: DataSizes, machines: Machines, max_leaf_size: int = 100) -> StageEstimate:
    """Estimate the label tree, whose labels are clustered by the mean features of their documents."""
    given = _label_entries(data)
    per_label = min(given / data.labels * _DIFFERENT, data.features)
    if given > MANY_ENTRIES:
        per_label = min(per_label, STRONGEST)
    entries = data.labels * per_label
    depth = binary_depth(data.labels, max_leaf_size)
    cores = machines.ranks * machines.cores_per_rank
    # Clustering needs the embeddings and two copies; summing, the documents of each label and the sums of a range.
    clustering = entries * 8 * 3
    summing = entries * 8 + data.documents * data.labels_per_document * 32 + machines.cores_per_rank * _RANGE_BYTES
    return StageEstimate(
        "label tree",
        memory=max(clustering, summing) + data.documents * data.entries * 8,
        on_device=False,
        sent=entries * 8 / machines.ranks if machines.ranks > 1 else 0.0,
        seconds=(given * _A_SUMMED_ENTRY + entries * depth * _A_TREE_ENTRY) / cores,
        detail=f"{depth} halvings of {data.labels:,} labels",
    )


def _label_entries(data: DataSizes) -> float:
    """Return the number of features of each label's documents, summed over the labels."""
    return data.documents * data.labels_per_document * data.entries


class RankerWork(NamedTuple):
    """The work of training the rankers of one tree, in feature entries that one pass over all labels reads."""

    total: float
    longest: float  # of the root's task, which one core solves from beginning to end
    entries: float  # that the root's task reads: those of all documents
    other: float  # that the largest other task reads


def ranker_work(data: DataSizes, entries: float, *, nr_splits: int = 16, max_leaf_size: int = 100) -> RankerWork:
    """Estimate the work of one tree's rankers, for documents of ``entries`` features (a dense one counts less).

    A document is matched to a cluster if it has one of its labels. Labels are assumed to be independent, and clusters
    to be equally frequent: a cluster contains many labels, so their different frequencies hardly matter.
    """
    leaves = half_bounds(data.labels, binary_depth(data.labels, max_leaf_size))
    works: list[np.ndarray] = []
    gathered: list[float] = []
    for splits in [*upper_splits(leaves.size - 1, nr_splits, None), leaves]:
        clusters = splits.size - 1
        share = -np.expm1(-data.labels_per_document / clusters) if works else 1.0  # of the documents, for one cluster
        gathered.append(data.documents * share * (entries + 1))
        works.append(cut_clusters(np.diff(splits), np.full(clusters, gathered[-1])).work)
    total = float(sum(work.sum() for work in works))
    return RankerWork(total, float(works[0].max()), gathered[0], max(gathered[1:], default=gathered[0]))


def rankers(
    data: DataSizes, width: int, machines: Machines, *, trees: int = 1, nr_splits: int = 16, max_leaf_size: int = 100,
    streamed: bool | None = None,
) -> StageEstimate:  # fmt: skip
    """Estimate the linear rankers: an even share of their work, but at least the root's task.

    ``width`` is the dimension of the embeddings beside the features, or 0. ``streamed`` rankers are written as they are
    solved, by default if the data are large.
    """
    work = ranker_work(data, data.entries + _DENSE_ENTRY * width, nr_splits=nr_splits, max_leaf_size=max_leaf_size)
    cores = machines.ranks * machines.cores_per_rank
    # Of each document in a task: the state of a register of labels.
    a_document = WIDTH * 4 + WIDTH + 24
    root, other = (8 * one + one / (data.entries + 1) * a_document for one in (work.entries, work.other))
    mapped = data.documents * (data.entries * 8 + width * 4)
    levels = 1 + len(upper_splits(2 ** binary_depth(data.labels, max_leaf_size), nr_splits, None))
    problems = data.documents * data.labels_per_document * _A_LABEL_OF_A_LEVEL * levels
    weights = 8.0 * trees * (_label_entries(data) * _WEIGHTS_AN_ENTRY + data.labels * width)
    alone = machines.ranks == 1
    if streamed is None:
        streamed = alone and _label_entries(data) > MANY_ENTRIES
    # Rank 0 makes the problems of many ranks. One process keeps the weights, beside a copy of those of a level.
    memory = 8.0 * (data.documents + data.labels) + problems + root + (machines.cores_per_rank - 1) * other
    held = weights * 1.6 if alone and not streamed else 0.0
    return StageEstimate(
        "rankers",
        memory=memory + held,
        on_device=False,
        sent=0.0,
        seconds=max(work.total / cores, work.longest) / _UNITS_A_SECOND * trees,
        detail=f"the root's task: {work.longest / work.total:.1%} of the work; {size(mapped)} of features mapped",
        # Weights are written in PECOS's format and arranged for search; ranks also write blocks, which are joined.
        disk=weights * (1 if streamed else 2 if alone else 3),
    )
