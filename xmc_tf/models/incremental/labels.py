"""Remove, merge or correct labels of a trained linear model."""

import dataclasses
import logging
from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np
from scipy.sparse import csc_matrix, csr_matrix, lil_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.data import as_features, check_pair
from xmc_tf.fusion import ProbabilityModel
from xmc_tf.models.documents import ReadDocuments
from xmc_tf.models.incremental.documents import further_labels, training_of
from xmc_tf.models.incremental.training_data import TrainingData, params_of_growth, recounted
from xmc_tf.models.linear.parts import LinearParts
from xmc_tf.models.metadata import ADDED
from xmc_tf.params.values import nearest
from xmc_tf.rankers.ensemble import rankers_of, trees_of
from xmc_tf.rankers.incremental.rankers import GrownRankers, changed_clusters, regrouped, solved_again
from xmc_tf.rankers.tasks import Instances
from xmc_tf.rankers.xlinear import XLinear
from xmc_tf.tree import LabelTree

_LOG = logging.getLogger(__name__)
_Model = TypeVar("_Model", bound=LinearParts)


def without_labels(model: _Model, labels: Iterable[str | int]) -> _Model:
    number = LabelNumbers(model)
    number_of = np.zeros(model.nr_labels, np.int64)
    number_of[[number[label] for label in labels]] = -1
    kept = np.flatnonzero(number_of == 0)
    number_of[kept] = np.arange(len(kept))
    in_rankers = kept[kept < model.ranker.nr_labels]
    if len(kept) == model.nr_labels or not len(in_rankers):
        raise InputError(
            "these labels cannot be removed", expected="labels to remove, and one that stays and has documents",
            received=f"{model.nr_labels - len(kept):,} of {model.nr_labels:,} labels to remove",
        )  # fmt: skip
    trees = [without_leaves(tree, in_rankers) for tree in (model.tree, *model.more_trees)]
    rankers = [_ranker(ranker, tree, in_rankers) for ranker, tree in zip(trees_of(model.ranker), trees, strict=True)]
    training = model.training_data
    if training is not None:
        training = training.with_labels(training.labels(model.ranker.nr_labels)[:, in_rankers]).without_idle_names()
    return with_fewer_labels(model, number_of, kept, rankers, trees, training)


def with_fewer_labels(
    model: _Model, number_of: np.ndarray, kept: np.ndarray, rankers: Sequence[XLinear], trees: Sequence[LabelTree],
    training: TrainingData | None,
) -> _Model:  # fmt: skip
    """Return the model with new rankers and trees for fewer labels, and its other parts reduced to the same labels.

    ``number_of`` maps each old label to its new number, or to -1 if it is removed. ``kept`` maps each new number to the
    old label that it takes its name from.
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


def with_merged_labels(model: _Model, groups: Iterable[Iterable[str | int]], threads: int) -> _Model:
    """Return the model with some labels merged into the first label of their group."""
    training = training_of(model)
    stays = _stays(model, groups)
    kept = np.unique(stays)
    number_of = np.searchsorted(kept, stays)
    in_rankers = kept[kept < model.ranker.nr_labels]
    after = training.with_labels(_renumbered(training.labels(model.ranker.nr_labels), number_of, len(in_rankers)))
    trees = [without_leaves(tree, in_rankers) for tree in (model.tree, *model.more_trees)]
    rankers = _solved_again(model, training, after, trees, in_rankers, threads)
    merged = with_fewer_labels(model, number_of, kept, rankers, trees, after)
    return dataclasses.replace(merged, evidence=recounted(merged.evidence, after))


def with_corrections(model: _Model, read: ReadDocuments, threads: int) -> _Model:
    training = training_of(model)
    Y, _ = further_labels(model, read.labelled(), None)
    check_pair(read.documents, Y, "the documents", "the labels")
    X = read.documents if read.texts is None else model.features(read.texts, threads)
    nr_labels = model.ranker.nr_labels
    training.check_features(X)
    if Y.nnz and int(Y.indices.max()) >= nr_labels:
        raise InputError(
            "one of the labels has no documents", expected="labels with documents", fix="append documents with it first"
        )
    before = training.labels(nr_labels)
    rows = training.rows_like(X)
    if not any(len(own) for own in rows):
        raise InputError(
            "none of these documents are in the model's training data", expected="training documents",
            fix="append them instead",
        )  # fmt: skip
    if left := sum(not len(own) for own in rows):
        _LOG.warning("%s of %s documents are not in the training data and are left out", f"{left:,}", f"{len(rows):,}")
    after = lil_matrix(before)
    for document, own in enumerate(rows):
        labels = np.sort(Y.indices[Y.indptr[document] : Y.indptr[document + 1]]).tolist()
        for row in own:
            after.rows[row], after.data[row] = labels, [1.0] * len(labels)
    every = training.with_labels(csr_matrix(after, dtype=np.float32))
    trees = [model.tree, *model.more_trees]
    rankers = _solved_again(model, training, every, trees, np.arange(nr_labels), threads)
    metadata = model.metadata.replace(nr_weights=sum(ranker.nr_weights for ranker in rankers))
    return dataclasses.replace(
        model, ranker=rankers_of(rankers), metadata=metadata, own_training=every,
        evidence=recounted(model.evidence, every),
    )  # fmt: skip


def _solved_again(
    model: LinearParts, before: TrainingData, after: TrainingData, trees: Sequence[LabelTree], kept: np.ndarray,
    threads: int,
) -> list[XLinear]:  # fmt: skip
    """Return the rankers for changed labels of the same documents; only clusters that change are solved again.

    ``kept`` maps each new label to the old label that it takes its weights from.
    """
    instances = Instances(as_features(before.X), params_of_growth(model.metadata))
    Y = before.labels(model.ranker.nr_labels)
    growths = []
    for ranker, tree, new in zip(trees_of(model.ranker), [model.tree, *model.more_trees], trees, strict=True):
        old, levels = (instances.levels(some, one.to_chain()) for some, one in ((Y, tree), (after.Y, new)))
        columns = [*(np.arange(clusters.shape[0]) for clusters in levels.clusters[:-1]), kept]
        growths.append(GrownRankers(ranker, levels, columns, changed_clusters(old, levels, columns), before.nr_rows))
    return solved_again(growths, instances, threads, model.metadata.seed)


class LabelNumbers:
    """Look up the number of a label by its name or number."""

    def __init__(self, model: LinearParts) -> None:
        self._names, self._count = model.names or [], model.nr_labels
        self._number_of = {name: number for number, name in enumerate(self._names)}

    def __getitem__(self, label: str | int) -> int:
        number = self._number_of.get(label) if isinstance(label, str) else int(label)
        if number is None or not 0 <= number < self._count:
            similar = nearest(label, self._names) if isinstance(label, str) and self._names else None
            raise InputError(
                f"the model has no label {str(label)[:60]!r}",
                expected=f"the name of one of its {self._count:,} labels"
                if self._names
                else f"a number from 0 to {self._count - 1:,}",
                fix=f"did you mean {similar!r}?" if similar else "check the name or number",
            )
        return number


def without_leaves(tree: LabelTree, kept: np.ndarray) -> LabelTree:
    """Return the tree with only the ``kept`` labels (ascending), renumbered from 0; their clusters stay the same."""
    cluster_of = np.empty(tree.nr_labels, np.int64)
    leaves = tree.splits[-1]
    cluster_of[tree.labels] = np.repeat(np.arange(leaves.size - 1), np.diff(leaves))
    return regrouped(tree, np.arange(len(kept)), cluster_of[kept])


def _ranker(ranker: XLinear, tree: LabelTree, kept: np.ndarray) -> XLinear:
    """Return the rankers reduced to the kept labels, over a tree of these labels."""
    levels = [
        dataclasses.replace(level, clusters=clusters)
        for level, clusters in zip(ranker.levels, tree.to_chain(), strict=True)
    ]
    levels[-1] = dataclasses.replace(levels[-1], stored=csc_matrix(levels[-1].weights[:, kept]))
    return XLinear(levels, ranker.nr_sparse, ranker.nr_dense, pecos=ranker.pecos)


def _stays(model: LinearParts, groups: Iterable[Iterable[str | int]]) -> np.ndarray:
    """Return an array that maps each label to the label that it is merged into, or to itself."""
    number, known = LabelNumbers(model), model.ranker.nr_labels
    stays = np.arange(model.nr_labels)
    seen: set[int] = set()
    for group in groups:
        labels = list(group)
        numbers = [number[label] for label in labels]
        if len(labels) < 2:
            raise InputError(
                "a group has nothing to merge",
                expected="at least two labels: the label to keep, then the labels to merge into it",
                received=f"a group of {len(labels)}" + (f": {labels[0]!r}" if labels else ""),
            )
        for at, label in enumerate(labels):
            if numbers[at] in seen:
                raise InputError(f"label {label!r} occurs twice", expected="each label at most once over all groups")
            seen.add(numbers[at])
        if numbers[0] >= known > min(numbers):
            raise InputError(
                f"label {labels[0]!r} has no documents, but another label of its group does",
                expected="a label with documents as the first of the group, which is the label to keep",
            )
        stays[numbers] = numbers[0]
    if not seen:
        raise InputError("there is nothing to merge", expected="at least one group of labels")
    return stays


def _renumbered(Y: csr_matrix, number_of: np.ndarray, count: int) -> csr_matrix:
    """Return the label matrix with new label numbers; labels that become equal are counted once per document."""
    out = csr_matrix((Y.data.copy(), number_of[Y.indices], Y.indptr.copy()), shape=(Y.shape[0], count))
    out.sum_duplicates()
    out.data[:] = 1.0
    return out
