"""Append documents, and optionally new labels, to a trained linear model."""

import dataclasses
import logging
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from scipy.sparse import csr_matrix, vstack

from xmc_tf.common.errors import InputError
from xmc_tf.data import Features, as_features, check_labels, check_pair
from xmc_tf.label_names import NameDocuments, label_vocabulary
from xmc_tf.models.documents import ReadDocuments
from xmc_tf.models.incremental.training_data import TrainingData, params_of_growth, recounted
from xmc_tf.models.labels import matrix_of_names, needed_names
from xmc_tf.models.linear.parts import LinearParts
from xmc_tf.models.metadata import ADDED
from xmc_tf.params.values import nearest
from xmc_tf.rankers.ensemble import rankers_of, trees_of
from xmc_tf.rankers.incremental.rankers import (
    GrownRankers,
    adjusted,
    place_labels,
    regrouped,
    solved_again,
    with_documents_from,
)
from xmc_tf.rankers.tasks import Instances
from xmc_tf.tables.label_forms import LabelData
from xmc_tf.tree import LabelTree
from xmc_tf.tree.label_embeddings import label_embedding

_LOG = logging.getLogger(__name__)
_Model = TypeVar("_Model", bound=LinearParts)
APPENDED = "nr_appended_documents"


def with_documents(
    model: _Model, read: ReadDocuments, new_labels: bool | Sequence[str], *, exact: bool, threads: int
) -> _Model:
    """Return the model after appending documents."""
    training = training_of(model)
    Y, new_lines = further_labels(model, read.labelled(), new_labels)  # new labels are the last columns
    check_pair(read.documents, Y, "the documents", "the labels")
    if not Y.shape[0] or not Y.nnz:
        raise InputError(
            "there is nothing to append", expected="at least one document with a label",
            received=f"only documents without labels ({Y.shape[0]:,})" if Y.shape[0] else "no documents",
        )  # fmt: skip
    X = read.documents if read.texts is None else model.features(read.texts, threads)
    training.check_features(X)
    rows = _new_rows(training, X, Y)
    if not len(rows) and not new_lines:
        return model
    X, Y = X.rows(rows), csr_matrix(Y[rows])
    grown, documents = appended(model, training, X, Y, new_lines, exact=exact, threads=threads), model.trained_documents
    return grown if documents is None or read.texts is None else grown.knowing(documents.with_texts(read.texts))


def _new_rows(training: TrainingData, X: Features, Y: csr_matrix) -> np.ndarray:
    """Return the documents that the model does not have yet with these labels."""
    known, others, wider = training.holds(X, Y)
    correct = "correct them (xmc-tf append --accepted, in Python: with_corrections)"
    if wider.any():
        _LOG.warning(
            "%s of %s documents have further labels in the model, which stay; to remove these, %s",
            f"{wider.sum():,}", f"{len(known):,}", correct,
        )  # fmt: skip
    if known.all():
        _LOG.warning("the model already has all of these %s documents with these labels", f"{len(known):,}")
    elif known.any():
        _LOG.warning(
            "%s of %s documents are left out: the model already has them with these labels",
            f"{known.sum():,}", f"{len(known):,}",
        )  # fmt: skip
    if others.any():
        _LOG.warning(
            "%s of %s documents are in the model with other labels and are appended beside them; to replace the "
            "labels, %s", f"{others.sum():,}", f"{len(known):,}", correct,
        )  # fmt: skip
    return np.flatnonzero(~known)


def appended(
    model: _Model, training: TrainingData, X: Features, Y: csr_matrix, new_lines: Sequence[str], *,
    exact: bool = False, threads: int = -1,
) -> _Model:  # fmt: skip
    """Return the model after appending documents (possibly none) and the names of new labels."""
    count, known = int(Y.shape[1]), model.ranker.nr_labels
    # The rankers do not know labels that were added by name until one of them has documents.
    found_by_name = model.evidence is not None and model.evidence.names is not None
    only_names = found_by_name and not new_lines and int(Y.indices.max(initial=0)) < known
    in_rankers = known if only_names else count
    names = _new_names(model, new_lines, in_rankers)
    every = TrainingData(
        vstack([training.X, csr_matrix(X.sparse), names.X], format="csr"),
        vstack([training.labels(in_rankers), _cut(Y, in_rankers), names.Y], format="csr"),
        np.concatenate([training.is_name, np.zeros(X.nr_rows, bool), names.is_name]),
    )
    trees = [model.tree, *model.more_trees]
    if in_rankers > known:
        trees = with_labels(trees, every, known, threads)
    instances = Instances(as_features(every.X), params_of_growth(model.metadata))
    growths = []
    for ranker, tree in zip(trees_of(model.ranker), trees, strict=True):
        levels = instances.levels(every.Y, tree.to_chain())
        changed = with_documents_from(levels, training.nr_rows)
        columns = [np.arange(clusters.shape[0]) for clusters in levels.clusters]
        columns[-1][known:] = -1
        new = np.asarray(levels.clusters[-1].T @ (columns[-1] < 0).astype(np.float32)).ravel() > 0
        changed[-1] |= new
        growths.append(GrownRankers(ranker, levels, columns, changed, training.nr_rows))
    solve = solved_again if exact else adjusted
    rankers = solve(growths, instances, threads, model.metadata.seed)
    evidence = model.evidence
    if evidence is not None:
        evidence = dataclasses.replace(evidence.with_added(new_lines) if new_lines else evidence, allowed=None)
    called = None if model.names is None else [*model.names, *label_vocabulary(new_lines).preferred]
    changes = {
        "nr_documents": every.nr_documents,
        "nr_labels": in_rankers,
        "nr_weights": sum(ranker.nr_weights for ranker in rankers),
        APPENDED: int(model.metadata.content.get(APPENDED, 0)) + X.nr_rows,
        **({ADDED: count - in_rankers} if ADDED in model.metadata.content or count > in_rankers else {}),
    }
    return dataclasses.replace(
        model, ranker=rankers_of(rankers), tree=trees[0], more_trees=trees[1:], names=called,
        metadata=model.metadata.replace(**changes), own_training=every, evidence=recounted(evidence, every),
    )  # fmt: skip


def _new_names(model: LinearParts, lines: Sequence[str], nr_labels: int) -> TrainingData:
    """Return the names of new labels as training documents, if the model was also trained on its other label names."""
    fusion = None if model.evidence is None else model.evidence.fusion
    names = NameDocuments.of(lines if fusion is not None and fusion.names else [])
    X = (
        csr_matrix(model.features(names.texts, threads=1).sparse)
        if names.texts
        else csr_matrix((0, model.ranker.nr_features), dtype=np.float32)
    )
    Y = names.Y
    first = nr_labels - Y.shape[1] if names.texts else 0
    Y = csr_matrix((Y.data, Y.indices + first, Y.indptr), shape=(Y.shape[0], nr_labels))
    return TrainingData(X, Y, np.ones(Y.shape[0], bool))


def training_of(model: LinearParts) -> TrainingData:
    """Return the training data stored with a model; raise an error if there is none."""
    training = model.training_data
    if training is None:
        raise InputError(
            f"{model.folder or 'the model'} has not kept its training data, which updates need",
            expected="a model trained with --keep-training-data (in Python: keep_training_data=True)",
            fix="train it again with --keep-training-data true, on all documents",
        )
    return training


def further_labels(
    model: LinearParts, labels: LabelData, new_labels: bool | Sequence[str] | None
) -> tuple[csr_matrix, Sequence[str]]:
    """Return the label matrix of documents, and the names of labels that are new to the model.

    ``new_labels`` is None for corrections, which cannot add labels.
    """
    lines = list(new_labels) if isinstance(new_labels, Sequence) else []
    if labels.is_matrix and labels.columns is None:
        matrix = labels.matrix()
        check_labels(matrix)
        Y = csr_matrix(matrix)
        expected = model.nr_labels + len(lines)
        free = bool(new_labels) and model.names is None
        if Y.shape[1] > expected and not free:
            raise InputError(
                "the label matrix has labels that the model does not have", expected=f"at most {expected:,} columns",
                received=f"{Y.shape[1]:,}",
                fix="" if new_labels is None else "pass the names of the new labels (in Python: new_labels=[...])",
            )  # fmt: skip
        count = max(expected, Y.shape[1])
        return csr_matrix((Y.data, Y.indices, Y.indptr), shape=(Y.shape[0], count)), lines
    documents = labels.names
    own = needed_names(model.names, model.nr_labels)
    known = {*own, *label_vocabulary(lines).preferred}
    unknown = {name: row for row, document in reversed([*enumerate(documents)]) for name in document}
    unknown = {name: row for name, row in unknown.items() if name not in known}
    if unknown and new_labels is not True:
        name = min(unknown, key=lambda name: (unknown[name], name))
        similar = nearest(name, own)
        raise InputError(
            "the documents have labels that the model does not have", expected=f"labels of the model ({len(own):,})",
            received=f"{len(unknown):,} unknown, the first in document {unknown[name]:,}: {name[:60]!r}",
            fix=(f"did you mean {similar!r}? Or " if similar else "")
            + (
                "first append a document with each new label, with --new-labels (in Python: with_documents)"
                if new_labels is None
                else "add the new labels to the model with --new-labels (in Python: new_labels=True)"
            ),
        )  # fmt: skip
    lines += sorted(unknown)
    names = [*own, *label_vocabulary(lines).preferred]
    return matrix_of_names(documents, names, "the labels of the model"), lines


def with_labels(trees: Sequence[LabelTree], data: TrainingData, known: int, threads: int) -> list[LabelTree]:
    """Return the trees with the labels numbered ``known`` and above, placed by the features of their documents."""
    Y = data.Y
    new = Y[:, known:]
    rows = np.flatnonzero(np.diff(new.indptr))
    embeddings = csr_matrix((new.shape[1], data.X.shape[1]), dtype=np.float32)
    if len(rows):
        embeddings = csr_matrix(label_embedding("pifa", data.X[rows], csr_matrix(new[rows]), threads=threads))
    earlier = csr_matrix(Y[:, :known])
    return [
        place_labels(tree, data.X, earlier, embeddings)
        if tree.level_sizes[-2] > 1
        else regrouped(tree, np.arange(Y.shape[1]), np.zeros(Y.shape[1], np.int64))
        for tree in trees
    ]


def _cut(Y: csr_matrix, count: int) -> csr_matrix:
    """Return a label matrix with ``count`` columns and entries of 1; columns that are cut off must be empty."""
    out = csr_matrix((np.ones(Y.nnz, np.float32), Y.indices, Y.indptr), shape=(Y.shape[0], max(count, 1)))
    out.sum_duplicates()
    out.data[:] = 1.0
    return out
