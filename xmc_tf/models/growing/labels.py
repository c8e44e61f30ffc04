"""Labels that are removed from a trained linear model."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np
from scipy.sparse import csc_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.fusion import ProbabilityModel
from xmc_tf.models.growing.training_data import TrainingData
from xmc_tf.models.linear.parts import LinearParts
from xmc_tf.models.metadata import ADDED
from xmc_tf.params.values import nearest
from xmc_tf.rankers.ensemble import rankers_of, trees_of
from xmc_tf.rankers.growing import regrouped
from xmc_tf.rankers.xlinear import XLinear
from xmc_tf.tree import LabelTree

_Model = TypeVar("_Model", bound=LinearParts)


def without_labels(model: _Model, labels: Iterable[str | int]) -> _Model:
    """Return the model without some labels; see :meth:`XRLinear.without_labels`."""
    number = LabelNumbers(model)
    number_of = np.zeros(model.nr_labels, np.int64)
    number_of[[number[label] for label in labels]] = -1
    kept = np.flatnonzero(number_of == 0)
    number_of[kept] = np.arange(len(kept))
    in_rankers = kept[kept < model.ranker.nr_labels]
    if len(kept) == model.nr_labels or not len(in_rankers):
        raise InputError(
            "these labels cannot be removed",
            expected="at least one label to remove, and one with documents to keep",
            received=f"{model.nr_labels - len(kept):,} of {model.nr_labels:,} labels",
        )
    trees = [without_leaves(tree, in_rankers) for tree in (model.tree, *model.more_trees)]
    rankers = [_ranker(ranker, tree, in_rankers) for ranker, tree in zip(trees_of(model.ranker), trees, strict=True)]
    training = model.training_data
    if training is not None:
        training = TrainingData(training.X, training.labels(model.ranker.nr_labels)[:, in_rankers])
    return with_fewer_labels(model, number_of, kept, rankers, trees, training)


def with_fewer_labels(
    model: _Model,
    number_of: np.ndarray,
    kept: np.ndarray,
    rankers: Sequence[XLinear],
    trees: Sequence[LabelTree],
    training: TrainingData | None,
) -> _Model:
    """Return a model with the rankers of fewer labels, and the other parts cut to these labels.

    Args:
        model: the model.
        number_of: the new number of each label; -1: it is removed.
        kept: for each new number, the label of the model whose name it has.
        rankers: the rankers of the trees.
        trees: the label trees.
        training: the kept training data, with the new labels.
    """
    evidence, count = model.evidence, rankers[0].nr_labels
    if evidence is not None:
        fusion = dataclasses.replace(evidence.fusion, log_documents=evidence.fusion.log_documents[kept])
        names = None if evidence.names is None else evidence.names.renumbered(number_of)
        evidence = ProbabilityModel(fusion, names)
    changes = {"nr_labels": count, "nr_weights": sum(ranker.nr_weights for ranker in rankers)}
    if ADDED in model.metadata.content:
        changes[ADDED] = len(kept) - count
    return dataclasses.replace(
        model, ranker=rankers_of(rankers), tree=trees[0], more_trees=trees[1:], own_training=training,
        names=None if model.names is None else [model.names[label] for label in kept],
        own_tfidf=model.tfidf if model.reads_text else None, folder=None,
        metadata=model.metadata.replace(**changes), evidence=evidence,
    )  # fmt: skip


class LabelNumbers:
    """The numbers of a model's labels, which are given by names or by numbers.

    Example:
        >>> LabelNumbers(model)["gardening"]
        17

    Args:
        model: the model.
    """

    def __init__(self, model: LinearParts) -> None:
        self._names, self._count = model.names or [], model.nr_labels
        self._number_of = {name: number for number, name in enumerate(self._names)}

    def __getitem__(self, label: str | int) -> int:
        """Return the number of a label, or say which names are similar."""
        number = self._number_of.get(label) if isinstance(label, str) else int(label)
        if number is None or not 0 <= number < self._count:
            similar = nearest(label, self._names) if isinstance(label, str) and self._names else None
            raise InputError(
                f"the model has no label {str(label)[:60]!r}",
                expected=f"the name of one of its {self._count:,} labels"
                if self._names
                else f"a number from 0 to {self._count - 1:,}",
                fix=f"did you mean {similar!r}?" if similar else "check the spelling",
            )
        return number


def without_leaves(tree: LabelTree, kept: np.ndarray) -> LabelTree:
    """Return a tree with some of its labels, which are numbered from 0, in the same clusters.

    Args:
        tree: the tree.
        kept: the labels that stay, ascending.
    """
    cluster_of = np.empty(tree.nr_labels, np.int64)
    leaves = tree.splits[-1]
    cluster_of[tree.labels] = np.repeat(np.arange(leaves.size - 1), np.diff(leaves))
    return regrouped(tree, np.arange(len(kept)), cluster_of[kept])


def _ranker(ranker: XLinear, tree: LabelTree, kept: np.ndarray) -> XLinear:
    """Return the rankers with the columns of some labels, over a tree of these labels."""
    levels = [
        dataclasses.replace(level, clusters=clusters)
        for level, clusters in zip(ranker.levels, tree.to_chain(), strict=True)
    ]
    levels[-1] = dataclasses.replace(levels[-1], stored=csc_matrix(levels[-1].weights[:, kept]))
    return XLinear(levels, ranker.nr_sparse, ranker.nr_dense)
