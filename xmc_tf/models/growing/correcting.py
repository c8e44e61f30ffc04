"""Other labels for documents that a linear model was trained on."""

import dataclasses
import logging
from typing import TypeVar

import numpy as np
from scipy.sparse import csr_matrix, lil_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.data import Features, as_features
from xmc_tf.models.growing.training_data import TrainingData
from xmc_tf.models.linear.parts import LinearParts
from xmc_tf.params import RankerParams
from xmc_tf.rankers.ensemble import rankers_of, trees_of
from xmc_tf.rankers.growing import Growth, changed_clusters, solved_again
from xmc_tf.rankers.levels import Levels
from xmc_tf.rankers.tasks import Instances

_LOG = logging.getLogger(__name__)
_Model = TypeVar("_Model", bound=LinearParts)


def with_corrections(model: _Model, training: TrainingData, X: Features, Y: csr_matrix, threads: int = -1) -> _Model:
    """Return the model with other labels of some documents; see :meth:`XRLinear.with_corrections`.

    Args:
        model: the model.
        training: the documents that it was trained on.
        X: features of the documents to correct.
        Y: their labels.
        threads: number of threads; -1: one per core.
    """
    nr_labels = model.ranker.nr_labels
    if X.sparse is None or X.nr_dense or X.nr_features != training.X.shape[1]:
        raise InputError(
            "the features do not fit the model",
            expected=f"{training.X.shape[1]:,} sparse features, as in training", received=f"{X.nr_features:,}",
        )  # fmt: skip
    if Y.nnz and int(Y.indices.max()) >= nr_labels:
        raise InputError(
            "a label has no documents yet", expected="labels with documents", fix="append documents with it"
        )
    before = training.labels(nr_labels)
    rows = _rows_of(training.X, csr_matrix(X.sparse))
    if not any(len(own) for own in rows):
        raise InputError(
            "the model was trained on none of these documents", expected="documents of its training",
            fix="append them instead",
        )  # fmt: skip
    if left := sum(not len(own) for own in rows):
        _LOG.warning("%s of %s documents were not in the training, and are left out", f"{left:,}", f"{len(rows):,}")
    after = lil_matrix(before)
    for document, own in enumerate(rows):
        labels = np.sort(Y.indices[Y.indptr[document] : Y.indptr[document + 1]]).tolist()
        for row in own:
            after.rows[row], after.data[row] = labels, [1.0] * len(labels)
    every = TrainingData(training.X, csr_matrix(after, dtype=np.float32))
    params = RankerParams.from_json(model.metadata.train_params)
    growths = []
    for ranker, tree in zip(trees_of(model.ranker), [model.tree, *model.more_trees], strict=True):
        old, new = (Levels(one, tree.to_chain(), None, params, None) for one in (before, every.Y))
        columns = [np.arange(clusters.shape[0]) for clusters in new.clusters]
        growths.append(Growth(ranker, new, columns, changed_clusters(old, new, columns), training.nr_documents))
    rankers = solved_again(growths, Instances(as_features(training.X)), threads, model.metadata.seed)
    evidence = model.evidence
    if evidence is not None:
        documents = np.bincount(every.Y.indices, minlength=evidence.nr_labels)
        fusion = dataclasses.replace(evidence.fusion, log_documents=np.log1p(documents).astype(np.float32))
        evidence = dataclasses.replace(evidence, fusion=fusion)
    metadata = model.metadata.replace(nr_weights=sum(ranker.nr_weights for ranker in rankers))
    return dataclasses.replace(
        model, ranker=rankers_of(rankers), metadata=metadata, own_training=every, evidence=evidence
    )


def _rows_of(X: csr_matrix, wanted: csr_matrix) -> list[list[int]]:
    """Return for each wanted row the rows that are the same."""
    X, wanted = (one.sorted_indices() for one in (X, wanted))
    places: dict[bytes, list[int]] = {}
    keys = [_key(wanted, row) for row in range(wanted.shape[0])]
    sought = set(keys)
    for row in range(X.shape[0]):
        if (key := _key(X, row)) in sought:
            places.setdefault(key, []).append(row)
    return [places.get(key, []) for key in keys]


def _key(X: csr_matrix, row: int) -> bytes:
    own = slice(X.indptr[row], X.indptr[row + 1])
    return X.indices[own].astype(np.int32).tobytes() + X.data[own].astype(np.float32).tobytes()
