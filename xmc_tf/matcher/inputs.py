"""The inputs of a matcher's training: the documents with their labels and tree, and the settings."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy.sparse import spmatrix

from xmc_tf.data import TokenStore
from xmc_tf.params import MatcherParams, MatcherPredParams
from xmc_tf.tree import LabelTree


class Validation(NamedTuple):
    """Documents that are not trained on, to measure the model during training.

    Attributes:
        store: their tokens.
        Y: their labels, documents × labels.
    """

    store: TokenStore
    Y: spmatrix


@dataclass(frozen=True, eq=False)
class MatcherData:
    """The documents, labels and tree that a matcher is trained on.

    Args:
        store: tokens of the documents. Each window is trained on as if it were a document with all of the document's
            labels.
        Y: documents × labels; an entry makes the label positive.
        tree: tree over the labels.
        pad_id: token id that fills the space behind a document's end; the tokenizer's.
        weights: relevance of each positive label, with the entries of ``Y``, for the weighted losses and the
            weighted bootstrap. Default: a node weighs as many labels of the document as it contains.
        rows: numbers of the documents to train on, if some are held out. Default: all.
        validation: documents to validate on; with them, the state that scored best is kept of each level.
        names: label names for TensorBoard's projector. Default: the label numbers.
    """

    store: TokenStore
    Y: spmatrix
    tree: LabelTree
    pad_id: int
    weights: spmatrix | None = None
    rows: np.ndarray | None = None
    validation: Validation | None = None
    names: Sequence[str] | None = None


@dataclass(frozen=True)
class MatcherSettings:
    """The settings of a matcher's training.

    Args:
        params: training parameters, one set for all levels or one per level.
        pred_params: prediction parameters of the levels, in the same form; they decide the negatives that a level
            predicts for the next one, and what validation measures.
        max_match_clusters: the maximum number of nodes of a level that is fine-tuned. Larger levels are left to the
            rankers, which need less memory and time per node.
        seed: seed of everything random.
    """

    params: MatcherParams | Sequence[MatcherParams]
    pred_params: MatcherPredParams | Sequence[MatcherPredParams] = field(default_factory=MatcherPredParams)
    max_match_clusters: int = 32768
    seed: int = 0
