"""Training of a linear model, on one rank or many; commands, jobs and classes all call ``train_linear``."""

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_matrix, spmatrix, vstack

from xmc_tf.common.activity import doing
from xmc_tf.common.errors import InputError
from xmc_tf.common.process.versions import package_versions
from xmc_tf.data import Features, JoinedTexts, Texts, as_features
from xmc_tf.data.vocabularies import LabelHierarchy
from xmc_tf.fusion import ProbabilityModel, SkipReasons, choose_evidence, held_out_folds
from xmc_tf.fusion.choice import check_unlabelled
from xmc_tf.fusion.evidence import WordSources
from xmc_tf.label_names import NameDocuments, label_vocabulary
from xmc_tf.models.incremental.training_data import TrainedDocuments, TrainingData
from xmc_tf.models.linear.executors import InMemory, OverRanks
from xmc_tf.models.linear.first_use import wait_for_kernels
from xmc_tf.models.linear.parts import LinearParts
from xmc_tf.models.metadata import ModelMetadata
from xmc_tf.params import (
    PredictionOptions,
    RankerPredParams,
    XRLinearParams,
    params_of_effort,
    with_effect,
)
from xmc_tf.params.tfidf import FEW, with_rare_words
from xmc_tf.pipeline.held_out import AUXILIARY_TREES, TreesAndParams, held_out_scorer
from xmc_tf.rankers.ensemble import rankers_of
from xmc_tf.rankers.problems import RankerData, level_pred_params, trained_levels
from xmc_tf.store.models import NO_PROBABILITIES
from xmc_tf.tree import LabelTree
from xmc_tf.tree.kmeans import build_tree

if TYPE_CHECKING:
    from xmc_tf.features import Tfidf

_LOG = logging.getLogger(__name__)
_PIFA = ("pifa", "pifa")
_DECISIVE = ("seed", "min_n_sub_tree", "probabilities", "label_names", "effort")


@dataclass(frozen=True, eq=False)
class LinearData:
    """The data that a linear model is trained on."""

    Y: spmatrix
    texts: Texts | None = None
    X: Features | None = None
    tfidf: "Tfidf | None" = None  # the vectorizer of X, if there are texts too
    lines: Sequence[str] | None = None  # the name of each label, with alternative names after tabs
    hierarchy: LabelHierarchy | None = None
    tree: LabelTree | None = None
    label_features: Features | None = None
    R: spmatrix | None = None  # relevance of the labels; needed on rank 0 only
    negatives: Mapping[int, spmatrix] = field(default_factory=dict)  # keys: levels above the labels; on rank 0 only
    unlabelled: Texts = ()  # show how rare words are
    nr_names: int = 0  # number of label names, which are the last documents
    name_features: Features | None = None  # of the names, if X is given
    called: Mapping[str, str] = field(default_factory=dict)  # names of "tree", "labels" … in messages

    def __post_init__(self) -> None:
        for what, one in (("tree", self.tree), ("label features", self.label_features)):
            count = one.nr_labels if isinstance(one, LabelTree) else None if one is None else one.nr_rows
            if count is not None and count != self.Y.shape[1]:
                raise InputError(
                    f"{self.called.get(what, f'the {what}')} and the labels do not fit together",
                    expected=f"{self.Y.shape[1]:,} labels, one per column of {self.called.get('labels', 'the labels')}",
                    received=f"{count:,} labels",
                )


@dataclass(frozen=True)
class LinearOptions:
    """All options of a training run, as set on the command line or in Python."""

    params: XRLinearParams = field(default_factory=XRLinearParams)
    prediction: PredictionOptions = PredictionOptions()  # noqa: RUF009  overrides ``params.prediction``
    effort: str | None = None  # "fast", "balanced", "best": trees and solver settings chosen by the data
    probabilities: bool | None = None  # None: if there are enough documents
    label_names: bool | None = None  # None: if there are texts and names
    keep_training_data: bool | None = False  # None: for a table, if the data are small
    label_embeddings: tuple[str, str] = _PIFA  # methods above the sub-trees and within them
    min_n_sub_tree: int = 16  # minimum number of sub-trees if these methods differ
    seed: int = 0
    threads: int = -1  # one per core; the model does not depend on it

    def pred_params(self, trees: Sequence[LabelTree]) -> list[RankerPredParams]:
        """Return the prediction parameters for the rankers of each tree, with one block per level."""
        ranker, prediction = self.params.ranker, self.params.prediction
        return [level_pred_params(ranker, prediction, tree.depth, self.prediction) for tree in trees]

    def decisive(self, reads_text: bool) -> dict[str, Any]:
        """Return all options that affect the model. The number of threads does not affect it."""
        return with_effect({
            "train": self.params.ranker.to_json(),
            "pred": self.params.prediction.to_json(),
            **self.recorded(reads_text),
            "prediction": self.prediction.search,
            "label_embedding_methods": self.label_embeddings,
            **{name: getattr(self, name) for name in _DECISIVE},
            "version": version("xmc_tf"),
        })  # fmt: skip

    def recorded(self, reads_text: bool) -> dict[str, Any]:
        """Return the parameters of label tree and vectorizer for the model metadata."""
        return {
            "indexer_params": self.params.to_json()["tree"],
            "tfidf_params": self.params.tfidf.to_json() if reads_text else None,
            **({} if self.label_embeddings == _PIFA else {"label_embeddings": self.label_embeddings}),
        }


def train_linear(data: LinearData, options: LinearOptions, executor: InMemory | OverRanks | None = None) -> LinearParts:
    """Train the features, label trees, rankers and probabilities of a model. All ranks of ``executor`` must call it."""
    executor = executor or InMemory(options.threads)
    names = None if data.lines is None else label_vocabulary(data.lines).preferred
    mode = options.params.ranker.mode
    skip_reasons = SkipReasons(
        "no label names" if not data.lines else "features without texts" if data.texts is None else "",
        "" if mode == "full-model" else f"the mode {mode}",
    )
    wanted = choose_evidence(options.probabilities, options.label_names, data.Y.shape[0], skip_reasons)
    check_unlabelled(len(data.unlabelled), wanted)
    data_with_names = _with_names(data) if wanted.label_names else data
    params = params_of_effort(options.params, options.effort, *data_with_names.Y.shape)
    X, tfidf = data_with_names.X, data_with_names.tfidf
    if X is None:
        assert data_with_names.texts is not None
        few = wanted.label_names and data.Y.shape[0] < FEW
        texts = data_with_names.texts
        if few and len(data.unlabelled):
            assert isinstance(texts, JoinedTexts)
            texts = JoinedTexts([data.unlabelled, *texts.sources], texts.nr_names)
        tfidf, X, fitted = executor.features(texts, with_rare_words(params.tfidf) if few else params.tfidf)
        if len(texts) > data_with_names.Y.shape[0]:
            X = X.rows(np.arange(len(data.unlabelled), len(texts)))
        params = dataclasses.replace(params, tfidf=fitted)  # with the detected language
    options = dataclasses.replace(options, params=params)
    kept = (
        TrainingData.of(X, data_with_names.Y, params.ranker, data_with_names.nr_names)
        if options.keep_training_data
        else None
    )
    shape = data.Y.shape[0] - data.nr_names, data.Y.shape[1], X.nr_features
    _LOG.debug("%s documents, %s labels, %s features", *(f"{n:,}" for n in shape))
    count = len(params.trees)
    clusters = data.tree is None and min(shape.max_leaf_size for shape in params.trees) < data.Y.shape[1]
    wait_for_kernels(clusters=clusters)
    if data.tree is None:
        trees = executor.trees(
            partial(_built_trees, X, data_with_names.Y, options, executor, count, data.label_features), count
        )
    else:
        _check_one_tree(count, data.called.get("tree", "the label tree"))
        trees = [data.tree]
    negatives = executor.agreed(lambda: _in_order(data_with_names, trees))
    ranker_data = RankerData(X, data_with_names.Y, trees, data_with_names.R, negatives)
    pred_params = options.pred_params(trees)
    rankers = executor.rankers(ranker_data, params.ranker, pred_params, options.seed)
    evidence = None
    if wanted.probabilities:
        evidence = executor.evidence(
            partial(_learn_evidence, data, data_with_names, options, ranker_data, partial(executor.vectorizer, tfidf))
        )
    if params.ranker.mode == "matcher":  # it predicts nodes, which have no names
        _check_one_tree(count, "the mode matcher")
        chain = trees[0].to_chain()
        trees, names = [LabelTree.from_chain(chain[trained_levels(params.ranker, len(chain))])], None
    metadata = ModelMetadata({
        "model": "XLinear",
        **({"nr_trees": count} if count > 1 else {}),
        "train_params": params.ranker.to_json(),
        "pred_params": pred_params[0].to_json(),  # of the first tree
        **options.recorded(data.texts is not None),
        "nr_documents": data.Y.shape[0],
        "nr_features": X.nr_features,
        "nr_dense": X.nr_dense,
        "nr_labels": rankers[0].nr_labels,
        "nr_weights": sum(ranker.nr_weights for ranker in rankers),
        "seed": options.seed,
        "versions": package_versions(),
        **({NO_PROBABILITIES: wanted.why_not} if wanted.why_not else {}),
    })  # fmt: skip
    return LinearParts(
        rankers_of(rankers), trees[0], names or None, metadata, own_tfidf=tfidf, evidence=evidence,
        more_trees=trees[1:], own_training=kept, hierarchy=data.hierarchy,
        own_documents=None if data.texts is None or executor.communicator.rank else TrainedDocuments.of(data.texts),
    )  # fmt: skip


def _with_names(data: LinearData) -> LinearData:
    """Return the data with one additional document for each label name."""
    assert data.lines is not None
    assert data.texts is not None
    names = NameDocuments.of(data.lines)
    X = data.X
    if X is not None:
        assert data.tfidf is not None
        further = data.name_features or as_features(data.tfidf.transform(names.texts))
        X = as_features(vstack([X.sparse, further.sparse], format="csr"))
    return dataclasses.replace(
        data, Y=names.below(data.Y), texts=JoinedTexts([data.texts, names.texts], len(names.texts)), X=X,
        nr_names=len(names.texts), R=None if data.R is None else names.below(data.R),
        negatives={level: names.unlabelled_below(one) for level, one in data.negatives.items()},
    )  # fmt: skip


def _built_trees(
    X: Features, Y: spmatrix, options: LinearOptions, executor: InMemory | OverRanks, count: int,
    label_features: Features | None = None,
) -> list[LabelTree]:  # fmt: skip
    """Build the label trees from label features or, without them, from embeddings of the labels."""
    embeddings, within = label_features, None
    if embeddings is None:
        above, below = options.label_embeddings
        embeddings = executor.label_embedding(above, X, Y)
        within = None if above == below else partial(executor.label_embedding, below, X, Y)
    shapes = options.params.trees[:count]
    threads = executor.threads if executor.threads != -1 else shapes[0].threads
    trees = []
    for shape in shapes:
        tree = build_tree(
            embeddings, shape, executor.communicator, threads=threads, min_n_sub_tree=options.min_n_sub_tree,
            sub_embeddings=within,
        )  # fmt: skip
        trees.append(tree)
        _LOG.debug("label tree: %s", " > ".join(f"{size:,}" for size in tree.level_sizes))
    return trees


def _check_one_tree(count: int, given: str) -> None:
    if count > 1:
        raise InputError(
            f"{given} cannot be combined with several trees", expected="one tree", received=f"{count} trees",
            fix=f"train one tree, or leave out {given}",
        )  # fmt: skip


def _in_order(data: LinearData, trees: Sequence[LabelTree]) -> Mapping[int, spmatrix]:
    """Return the negatives, with those of the leaf clusters reordered, because the tree renumbers the clusters."""
    negatives, called = data.negatives, data.called.get("negatives of clusters", "the matrix of cluster negatives")
    if 1 not in negatives:
        return negatives
    _check_one_tree(len(trees), called)
    order = trees[0].node_order[-1]
    if negatives[1].shape[1] != len(order):
        raise InputError(
            f"{called} does not fit the leaf clusters of the tree", expected=f"{len(order):,} columns, one per cluster",
            received=f"{negatives[1].shape[1]:,} columns",
            fix="pass the tree that they were computed for with --code-path",
        )  # fmt: skip
    return {**negatives, 1: negatives[1][:, order]}


@doing("learning how often labels with a score, or with their names in the text, are right")
def _learn_evidence(
    data: LinearData, data_with_names: LinearData, options: LinearOptions, rankers: RankerData,
    vectorizer: Callable[[], "Tfidf | None"],
) -> ProbabilityModel:  # fmt: skip
    """Learn probabilities from the scores of held-out documents, and from label names if the rankers learned them."""
    # Without names, the fusion learns as much from one tree, and each fold takes a large part of the training time.
    named, params = data_with_names.nr_names > 0, options.params
    folds = None if named else len(rankers.trees) - 1
    count = min(AUXILIARY_TREES if named else 1, len(rankers.trees))

    def plant(X: Features, Y: csr_matrix) -> TreesAndParams:
        trees = rankers.trees[:count]
        if data.tree is None and data.label_features is None:
            trees = _built_trees(X, Y, options, InMemory(options.threads), count)
        return [tree.to_chain() for tree in trees], options.pred_params(trees)

    score = held_out_scorer(
        rankers.X, rankers.Y, plant, nr_names=data_with_names.nr_names, R=rankers.R, params=params.ranker,
        user_negatives=rankers.user_negatives, threads=options.threads, seed=options.seed, tfidf=vectorizer(),
    )  # fmt: skip
    return ProbabilityModel.learn(
        data.lines if named else None, data.texts, data.Y, score,
        folds=held_out_folds(data.Y.shape[0], options.seed, folds), threads=options.threads,
        words=WordSources(params.tfidf.language, data.unlabelled),
    )  # fmt: skip
