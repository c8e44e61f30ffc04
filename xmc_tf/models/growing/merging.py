"""Labels of a trained linear model that become one."""

import dataclasses
from collections.abc import Iterable
from typing import TypeVar

import numpy as np
from scipy.sparse import csr_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.data import as_features
from xmc_tf.models.growing.labels import LabelNumbers, with_fewer_labels, without_leaves
from xmc_tf.models.growing.training_data import TrainingData
from xmc_tf.models.linear.parts import LinearParts
from xmc_tf.params import RankerParams
from xmc_tf.rankers.ensemble import trees_of
from xmc_tf.rankers.growing import Growth, changed_clusters, solved_again
from xmc_tf.rankers.levels import Levels
from xmc_tf.rankers.tasks import Instances

_Model = TypeVar("_Model", bound=LinearParts)


def with_merged_labels(
    model: _Model, training: TrainingData, groups: Iterable[Iterable[str | int]], threads: int = -1
) -> _Model:
    """Return the model with some labels merged; see :meth:`XRLinear.with_merged_labels`.

    Args:
        model: the model.
        training: the documents that it was trained on.
        groups: the labels to merge, in each group first the one that stays.
        threads: number of threads; -1: one per core.
    """
    stays = _stays(model, groups)
    kept = np.unique(stays)
    number_of = np.searchsorted(kept, stays)
    in_rankers = kept[kept < model.ranker.nr_labels]
    before = training.labels(model.ranker.nr_labels)
    after = _renumbered(before, number_of, len(in_rankers))
    params = RankerParams.from_json(model.metadata.train_params)
    trees = [model.tree, *model.more_trees]
    smaller = [without_leaves(tree, in_rankers) for tree in trees]
    growths = []
    for ranker, tree, new in zip(trees_of(model.ranker), trees, smaller, strict=True):
        levels = Levels(after, new.to_chain(), None, params, None)
        columns = [*(np.arange(clusters.shape[0]) for clusters in levels.clusters[:-1]), in_rankers]
        changed = changed_clusters(Levels(before, tree.to_chain(), None, params, None), levels, columns)
        growths.append(Growth(ranker, levels, columns, changed, training.nr_documents))
    rankers = solved_again(growths, Instances(as_features(training.X)), threads, model.metadata.seed)
    merged = with_fewer_labels(model, number_of, kept, rankers, smaller, TrainingData(training.X, after))
    if merged.evidence is not None:
        documents = np.bincount(after.indices, minlength=len(kept))
        fusion = dataclasses.replace(merged.evidence.fusion, log_documents=np.log1p(documents).astype(np.float32))
        merged = dataclasses.replace(merged, evidence=dataclasses.replace(merged.evidence, fusion=fusion))
    return merged


def _stays(model: LinearParts, groups: Iterable[Iterable[str | int]]) -> np.ndarray:
    """Return for each label the one that it becomes."""
    number, known = LabelNumbers(model), model.ranker.nr_labels
    stays = np.arange(model.nr_labels)
    seen: set[int] = set()
    for group in groups:
        labels = list(group)
        numbers = [number[label] for label in labels]
        if len(labels) < 2:
            raise InputError(
                "there is nothing to merge in a group",
                expected="two labels or more: the one that stays, and those that become it",
                received=f"{len(labels)} of them" + (f", {labels[0]!r}" if labels else ""),
            )
        for at, label in enumerate(labels):
            if numbers[at] in seen:
                raise InputError(f"label {label!r} occurs twice", expected="each label in one group, once")
            seen.add(numbers[at])
        if numbers[0] >= known > min(numbers):
            raise InputError(
                f"label {labels[0]!r} has no documents, but others of its group have some",
                expected="a label with documents as the one that stays, which is the first",
            )
        stays[numbers] = numbers[0]
    if not seen:
        raise InputError("there is nothing to merge", expected="at least one group of labels")
    return stays


def _renumbered(Y: csr_matrix, number_of: np.ndarray, count: int) -> csr_matrix:
    """Return labels by their new numbers, each once per document."""
    out = csr_matrix((Y.data.copy(), number_of[Y.indices], Y.indptr.copy()), shape=(Y.shape[0], count))
    out.sum_duplicates()
    out.data[:] = 1.0
    return out
