"""Audit the labels of documents with the parts of a trained model."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from scipy.sparse import csr_matrix

from xmc_tf.audit import Audit, AuditData, audit_labels, fold_scorer
from xmc_tf.common.errors import InputError
from xmc_tf.data import Features, Texts, check_pair
from xmc_tf.models.labels import binary, matrix_of_names, needed_names
from xmc_tf.params import PredictionOptions, RankerParams, RankerPredParams
from xmc_tf.params.tfidf import AS_WRITTEN
from xmc_tf.pipeline.held_out import AUXILIARY_TREES, held_out_trainer
from xmc_tf.rankers.problems import level_pred_params
from xmc_tf.tables.label_forms import LabelData

if TYPE_CHECKING:
    from xmc_tf.models.linear.parts import LinearParts
    from xmc_tf.models.parts import LazyModelFolder

_LOG = logging.getLogger(__name__)
_NEGATIVES = "tfn"  # the other schemes need scores of the label head


def audit_documents(
    model: "LazyModelFolder | LinearParts", X: Features, texts: Texts | None, labels: LabelData, params: RankerParams,
    *, documents: Sequence[str] | None, most: int, threads: int,
) -> Audit:  # fmt: skip
    """Return the label errors that the audit finds; ``params`` are the training options of the model's rankers."""
    if params.mode != "full-model":
        raise InputError("this model cannot be audited", expected="a model trained with mode full-model")
    trees = [model.tree, *model.more_trees][:AUXILIARY_TREES]
    names = None if model.names is None else model.names[: model.tree.nr_labels]
    Y = _known_labels(labels, names, model.tree.nr_labels)
    check_pair(X if texts is None else texts, Y, "the documents", "the labels")
    if documents is not None and len(documents) != Y.shape[0]:
        raise InputError("wrong number of document names", expected=f"{Y.shape[0]:,}", received=f"{len(documents):,}")
    params = replace(params, hlm_args=replace(params.hlm_args, neg_mining_chain=_NEGATIVES))
    planted = (
        [tree.to_chain() for tree in trees],
        [level_pred_params(params, RankerPredParams(), tree.depth, PredictionOptions()) for tree in trees],
    )
    train = held_out_trainer(X, Y, lambda *_: planted, params=params, threads=threads, seed=model.metadata.seed)
    whole = model.evidence is not None and model.evidence.nr_labels == Y.shape[1]
    data = AuditData(
        X, Y, fold_scorer(train, threads), texts, names,
        label_names=model.evidence.names if model.evidence is not None and whole else None,
        language=str((model.metadata.content.get("tfidf_params") or {}).get("language") or AS_WRITTEN),
        documents=documents, seed=model.metadata.seed, threads=threads,
    )  # fmt: skip
    return audit_labels(data, most)


def _known_labels(labels: LabelData, names: Sequence[str] | None, nr_labels: int) -> csr_matrix:
    """Return the label matrix; labels that the rankers do not know are left out, and a warning counts them."""
    if labels.is_matrix and (labels.columns is None or names is None):
        Y = binary(labels.matrix())
        if Y.shape[1] != nr_labels:
            raise InputError(
                "the labels do not fit the model", expected=f"{nr_labels:,} columns", received=f"{Y.shape[1]:,}"
            )
        return Y
    names = needed_names(names, nr_labels)
    known = set(names)
    kept = [[name for name in own if name in known] for own in labels.names]
    if unknown := sum(len(own) for own in labels.names) - sum(map(len, kept)):
        _LOG.warning("%s labels of documents are unknown to the model and are ignored", f"{unknown:,}")
    return matrix_of_names(kept, names, "the model's label names")
