"""Synthetic tasks of rankers: as many labels and documents as are planned, with frequencies as they occur in practice.

Labels have frequencies that follow a curve fitted to library records (16,481 labels of 153,161 documents). They lie at
random in the leaves of a tree. A document is matched to a cluster if it has one of its labels, taken as independent.
The tasks and how they are cut come from the code that trains.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from xmc_tf.linear.tasks import LevelTasks, cut_clusters
from xmc_tf.tree.grouping import binary_depth, half_bounds, upper_splits

# frequency(u) = exp(13.54) * (16481 * u + 2080) ** -1.092 at the share u of the labels, and its mean.
_HEAD, _POWER, _SHIFT, _LABELS = 13.54, 1.092, 2080.0, 16_481
_MEAN = 45.23
# Of the fitted records: documents per label.
_DOCUMENTS_A_LABEL = 9.293


@dataclass(frozen=True)
class RankerSizes:
    """The sizes that determine the tasks of rankers.

    Args:
        labels: number of labels.
        documents: number of documents.
        labels_per_document: mean number of labels of a document.
        entries: mean number of feature entries of a document; a dense one counts for ``DENSE_ENTRY`` of a sparse one.
        features: number of different features.
        nr_splits: number of children of a node.
        max_leaf_size: maximum number of labels of a leaf.
    """

    labels: int
    documents: int
    labels_per_document: float
    entries: float
    features: float
    nr_splits: int = 16
    max_leaf_size: int = 100

    @classmethod
    def like_records(cls, labels: int, entries: float = 30, features: float = 1e6) -> "RankerSizes":
        """Return sizes in the proportions of the records that the curve was fitted to."""
        return cls(labels, int(labels * _DOCUMENTS_A_LABEL), _MEAN / _DOCUMENTS_A_LABEL, entries, features)


class RankerTasks(NamedTuple):
    """The tasks of all levels.

    Args:
        levels: tasks by level.
        matched: sum over clusters of the documents matched to them.
    """

    levels: dict[int, LevelTasks]
    matched: int


def synthetic_tasks(sizes: RankerSizes, rng: np.random.Generator) -> RankerTasks:
    """Return the tasks of every level."""
    depth = binary_depth(sizes.labels, sizes.max_leaf_size)
    leaves = half_bounds(sizes.labels, depth)
    scale = sizes.labels_per_document * sizes.documents / (sizes.labels * _MEAN)
    rate = np.empty(leaves.size - 1)  # expected labels of a document in each cluster
    for first in range(0, leaves.size - 1, 1 << 14):
        bounds = leaves[first : first + (1 << 14) + 1]
        share = rng.random(bounds[-1] - bounds[0])
        frequency = scale * np.exp(_HEAD) * (_LABELS * share + _SHIFT) ** -_POWER
        rate[first : first + bounds.size - 1] = np.add.reduceat(frequency, bounds[:-1] - bounds[0]) / sizes.documents
    splits = [*upper_splits(leaves.size - 1, sizes.nr_splits, None), leaves]
    works, matched = {}, 0.0
    for level in range(len(splits) - 1, -1, -1):
        share = -np.expm1(-rate) if level else np.ones(1)
        entries = share * sizes.documents * (sizes.entries + 1)
        works[level] = cut_clusters(np.diff(splits[level]), entries, share * sizes.documents / sizes.features)
        matched += float(share.sum() * sizes.documents)
        if level:
            rate = np.add.reduceat(rate, splits[level - 1][:-1])
    return RankerTasks(dict(sorted(works.items())), int(matched))
