"""Labels that are removed from a trained linear model."""

import dataclasses
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
from scipy.sparse import csc_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.fusion import Evidence
from xmc_tf.linear.ensemble import rankers_of, trees_of
from xmc_tf.linear.growing import regrouped
from xmc_tf.linear.xlinear import XLinear
from xmc_tf.models.growing.training_data import TrainingData
from xmc_tf.models.metadata import ADDED
from xmc_tf.params.values import nearest
from xmc_tf.tree import LabelTree

LinearModel: TypeAlias = Any  # an XRLinear, whose module imports this one


def without_labels(model: LinearModel, labels: Iterable[str | int]) -> LinearModel:
    """Return the model without some labels; see :meth:`XRLinear.without_labels`."""
    removed = numbers_of(model, labels)
    kept = np.setdiff1d(np.arange(model.nr_labels), removed)
    in_rankers = kept[kept < model.ranker.nr_labels]
    if not len(removed) or not len(in_rankers):
        raise InputError(
            "these labels cannot be removed",
            expected="at least one label to remove, and one with documents to keep",
            received=f"{len(removed):,} of {model.nr_labels:,} labels",
        )
    trees = [_tree(tree, in_rankers) for tree in (model.tree, *model.more_trees)]
    rankers = [_ranker(ranker, tree, in_rankers) for ranker, tree in zip(trees_of(model.ranker), trees, strict=True)]
    training = model.training_data
    if training is not None:
        training = TrainingData(training.X, training.labels(model.ranker.nr_labels)[:, in_rankers])
    changes = {"nr_labels": len(in_rankers), "nr_weights": sum(ranker.nr_weights for ranker in rankers)}
    if ADDED in model.metadata.content:
        changes[ADDED] = len(kept) - len(in_rankers)
    return dataclasses.replace(
        model, ranker=rankers_of(rankers), tree=trees[0], more_trees=trees[1:], own_training=training,
        names=None if model.names is None else [model.names[label] for label in kept],
        own_tfidf=model.tfidf if model.reads_text else None, folder=None,
        metadata=model.metadata.replace(**changes), evidence=_evidence(model.evidence, kept),
    )  # fmt: skip


def numbers_of(model: LinearModel, labels: Iterable[str | int]) -> np.ndarray:
    """Return the numbers of labels that are given by names or by numbers, ascending.

    Args:
        model: the model.
        labels: names or numbers.
    """
    number_of = {name: number for number, name in enumerate(model.names or [])}
    numbers = []
    for label in labels:
        number = number_of.get(label) if isinstance(label, str) else int(label)
        if number is None or not 0 <= number < model.nr_labels:
            similar = nearest(label, model.names) if isinstance(label, str) and model.names else None
            raise InputError(
                f"the model has no label {str(label)[:60]!r}",
                expected=f"the name of one of its {model.nr_labels:,} labels"
                if model.names
                else f"a number from 0 to {model.nr_labels - 1:,}",
                fix=f"did you mean {similar!r}?" if similar else "check the spelling",
            )
        numbers.append(number)
    return np.unique(np.array(numbers, np.int64))


def _ranker(ranker: XLinear, tree: LabelTree, kept: np.ndarray) -> XLinear:
    """Return the rankers with the columns of some labels, over a tree of these labels."""
    levels = [
        dataclasses.replace(level, clusters=clusters)
        for level, clusters in zip(ranker.levels, tree.to_chain(), strict=True)
    ]
    levels[-1] = dataclasses.replace(levels[-1], stored=csc_matrix(levels[-1].weights[:, kept]))
    return XLinear(levels, ranker.nr_sparse, ranker.nr_dense)


def _tree(tree: LabelTree, kept: np.ndarray) -> LabelTree:
    cluster_of = np.empty(tree.nr_labels, np.int64)
    leaves = tree.splits[-1]
    cluster_of[tree.labels] = np.repeat(np.arange(leaves.size - 1), np.diff(leaves))
    return regrouped(tree, np.arange(len(kept)), cluster_of[kept])


def _evidence(evidence: Evidence | None, kept: np.ndarray) -> Evidence | None:
    if evidence is None:
        return None
    fusion = dataclasses.replace(evidence.fusion, log_documents=evidence.fusion.log_documents[kept])
    return Evidence(evidence.names.of_labels(kept), fusion)
