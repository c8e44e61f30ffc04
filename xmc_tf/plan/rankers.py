"""Estimates for the features, the label tree and the linear rankers."""

import numpy as np

from xmc_tf.plan.ranker_schedule import DENSE_ENTRY, simulate
from xmc_tf.plan.ranker_tasks import RankerSizes, synthetic_tasks
from xmc_tf.plan.sizes import DataSizes, Machines
from xmc_tf.plan.stage import StageEstimate, size
from xmc_tf.tree.grouping import binary_depth

# Seconds of one core, measured on 7,534 and on 153,161 library records.
_A_FEATURE_ENTRY = 1e-6
_A_TREE_ENTRY = 2e-8
# Of the feature entries of a label's documents, those that are different.
_DIFFERENT = 0.75


def features(data: DataSizes, machines: Machines) -> StageEstimate:
    """Estimate TF-IDF: all ranks count words, each of its own documents."""
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
    per_label = min(data.documents * data.labels_per_document / data.labels * data.entries * _DIFFERENT, data.features)
    entries = data.labels * per_label
    depth = binary_depth(data.labels, max_leaf_size)
    cores = machines.ranks * machines.cores_per_rank
    return StageEstimate(
        "label tree",
        memory=entries * 8 + data.documents * data.entries * 8,
        on_device=False,
        sent=entries * 8 / machines.ranks if machines.ranks > 1 else 0.0,
        seconds=entries * depth * _A_TREE_ENTRY / cores,
        detail=f"{depth} halvings of {data.labels:,} labels",
    )


def rankers(
    data: DataSizes, width: int, machines: Machines, *, trees: int = 1, nr_splits: int = 16, max_leaf_size: int = 100
) -> StageEstimate:
    """Estimate the linear rankers by simulating the plan of their sub-problems.

    Args:
        data: sizes of the data.
        width: dimension of the embeddings beside the features; 0: none.
        machines: the machines; each core solves one sub-problem at a time.
        trees: number of trees.
        nr_splits: number of children of a node.
        max_leaf_size: maximum number of labels of a leaf.
    """
    entries = data.entries + DENSE_ENTRY * width
    sizes = RankerSizes(
        data.labels, data.documents, data.labels_per_document, entries, data.features, nr_splits, max_leaf_size
    )
    tasks = synthetic_tasks(sizes, np.random.default_rng(0))
    threads = machines.ranks * machines.cores_per_rank
    found = simulate(tasks, sizes, threads, network=machines.network_per_rank / machines.cores_per_rank)
    mapped = data.documents * (data.entries * 8 + width * 4)
    largest = max(found["root_rank_gb"], found["other_rank_gb"]) * 1e9
    return StageEstimate(
        "rankers",
        memory=largest * machines.cores_per_rank,
        on_device=False,
        sent=found["sent_a_team_gb"] * 1e9,
        seconds=found["makespan_s"] * trees,
        detail=f"{found['sub_problems']:,} sub-problems on {threads:,} cores; {size(mapped)} of features mapped",
    )
