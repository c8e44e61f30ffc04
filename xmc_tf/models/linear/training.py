"""Training a linear model in memory: features, label tree, rankers."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scipy.sparse import spmatrix

from xmc_tf.common.errors import InputError
from xmc_tf.common.process.versions import package_versions
from xmc_tf.data import Features, TextFile, Texts, as_features
from xmc_tf.fusion import Evidence, held_out_folds
from xmc_tf.label_names import label_vocabulary
from xmc_tf.linear.fit import train_trees
from xmc_tf.linear.modes import level_pred_params, trained_levels
from xmc_tf.linear.xlinear import XLinear
from xmc_tf.models.metadata import ModelMetadata
from xmc_tf.params import (
    HierarchicalKMeansParams,
    PredictionOptions,
    RankerParams,
    RankerPredParams,
    TfidfParams,
    XRLinearParams,
)
from xmc_tf.pipeline.held_out import AUXILIARY_TREES, held_out_scorer
from xmc_tf.tree import LabelTree
from xmc_tf.tree.kmeans import build_tree
from xmc_tf.tree.label_embeddings import label_embedding

if TYPE_CHECKING:
    from xmc_tf.features import Tfidf


@dataclass(frozen=True, eq=False)
class RankerData:
    """The training data of linear rankers.

    Args:
        X: features of the documents.
        Y: labels, documents × labels.
        trees: the label trees; each has rankers of its own, and their scores are averaged.
        names: label names, or None.
        R: relevance of the labels, documents × labels, or None.
        user_negatives: additional negatives, by the number of levels above the labels.
    """

    X: Features
    Y: spmatrix
    trees: Sequence[LabelTree]
    names: Sequence[str] | None = None
    R: spmatrix | None = None
    user_negatives: Mapping[int, spmatrix] | None = None


def train_all_trees(
    data: RankerData,
    params: XRLinearParams,
    overrides: PredictionOptions | None = None,
    *,
    threads: int = -1,
    seed: int = 0,
) -> tuple[list[XLinear], list[RankerPredParams]]:
    """Train the rankers of all trees.

    Args:
        data: the training data.
        params: options of the rankers and of their predictions.
        overrides: options that override ``params.prediction``.
        threads: number of threads; -1: one per core.
        seed: random seed.

    Returns:
        The rankers of each tree, and their prediction parameters with one block per level.
    """
    overrides = overrides or PredictionOptions()
    pred_params = [level_pred_params(params.ranker, params.prediction, tree.depth, overrides) for tree in data.trees]
    rankers = train_trees(
        data.X, data.Y, [tree.to_chain() for tree in data.trees], R=data.R, params=params.ranker,
        pred_params=pred_params, user_negatives=data.user_negatives, threads=threads, seed=seed,
    )  # fmt: skip
    return rankers, pred_params


def preferred_names(lines: Sequence[str]) -> list[str]:
    """Return the name of each label, without the alternative names that follow after tabs."""
    return label_vocabulary(lines).preferred


def uses_label_names(wanted: bool | None, names: Sequence[str] | None, of_texts: bool, params: RankerParams) -> bool:
    """Return whether the names of labels are to be used as evidence.

    Args:
        wanted: whether the user asks for it; None: where it is possible.
        names: label names, or None.
        of_texts: whether the model is trained on texts.
        params: training parameters of the rankers.
    """
    possible = bool(names) and of_texts and params.mode == "full-model"
    if wanted and not possible:
        raise InputError(
            "label names cannot be used as evidence",
            expected="texts (-t), label names (--labels), and rankers of the full model",
            received="no label names" if not names else "features without texts" if not of_texts else params.mode,
            fix="leave out --label-names, or give texts and names",
        )
    return possible if wanted is None else wanted


def learn_evidence(
    names: Sequence[str],
    texts: Texts,
    data: RankerData,
    params: XRLinearParams,
    overrides: PredictionOptions | None = None,
    *,
    threads: int = -1,
    seed: int = 0,
) -> Evidence:
    """Learn what label names are worth and how to combine them with scores, on documents held out from training.

    Args:
        names: label names; alternative names follow after tabs.
        texts: the training documents.
        data: the rankers' training data of the same documents.
        params: options of the rankers.
        overrides: options that override ``params.prediction``.
        threads: number of threads; -1: one per core.
        seed: the training seed.
    """
    overrides = overrides or PredictionOptions()
    trees = data.trees[:AUXILIARY_TREES]
    score = held_out_scorer(
        data.X, data.Y, [tree.to_chain() for tree in trees], R=data.R, params=params.ranker,
        pred_params=[level_pred_params(params.ranker, params.prediction, tree.depth, overrides) for tree in trees],
        user_negatives=data.user_negatives, threads=threads, seed=seed,
    )  # fmt: skip
    return Evidence.learn(
        names, texts, data.Y, score, folds=held_out_folds(data.Y.shape[0], seed), threads=threads,
        language=params.tfidf.language,
    )  # fmt: skip


def fit_tfidf(
    texts: TextFile | Sequence[str] | Sequence[bytes], params: TfidfParams, threads: int = -1
) -> "tuple[Tfidf, Features]":
    """Return a vectorizer that is fitted to texts, and their features."""
    from xmc_tf.features import Tfidf  # it loads TensorFlow, which a model of features does not need

    if isinstance(texts, TextFile):
        texts.check()
    tfidf = Tfidf.fit(texts, params, threads=threads)
    return tfidf, as_features(tfidf.transform(texts, threads=threads))


def label_trees(
    tree: Any, X: Features, Y: spmatrix, params: Sequence[HierarchicalKMeansParams], threads: int = -1
) -> list[LabelTree]:
    """Return the label trees to train on.

    Args:
        tree: a label tree; or features of the labels, labels × features, to build it from; or None to build it from the
            features of the labels' documents.
        X: features of the documents.
        Y: labels, documents × labels.
        params: options of each tree that is built.
        threads: number of threads; -1: the number in ``params``.
    """
    what, count = "the tree", tree.nr_labels if isinstance(tree, LabelTree) else int(Y.shape[1])
    if tree is not None and not isinstance(tree, LabelTree):
        tree = as_features(tree)
        what, count = "the label features", tree.nr_rows
    if count != Y.shape[1]:
        raise InputError(
            f"{what} and the labels do not fit together",
            expected=f"{Y.shape[1]:,} labels, the columns of the label matrix",
            received=f"{count:,}",
        )
    if isinstance(tree, LabelTree):
        check_one_tree(len(params), "the label tree")
        return [tree]
    if threads != -1:
        params = [dataclasses.replace(one, threads=threads) for one in params]
    embedding = label_embedding("pifa", X, Y, threads=threads) if tree is None else tree
    return [build_tree(embedding, one) for one in params]


def check_one_tree(count: int, given: str) -> None:
    """Refuse several trees where one is given.

    Args:
        count: number of trees.
        given: what is given, for the error.
    """
    if count > 1:
        raise InputError(
            f"{given} is one tree, but the parameters ask for {count}",
            expected="one tree, or several that are built from the labels",
            received=f"{count} trees and {given}",
            fix=f"train one tree, or leave {given} out",
        )


def predicted_trees(
    trees: Sequence[LabelTree], names: Sequence[str] | None, params: RankerParams
) -> tuple[list[LabelTree], list[str] | None]:
    """Return the trees and the names of what a model predicts: a matcher predicts nodes, which have no names."""
    if params.mode != "matcher":
        return list(trees), list(names) if names else None
    check_one_tree(len(trees), "the mode matcher, which predicts nodes of its tree,")
    chain = trees[0].to_chain()
    return [LabelTree.from_chain(chain[trained_levels(params, len(chain))])], None


def summary_of(models: Sequence[XLinear]) -> str:
    """Return the size of a trained model for a log line."""
    weights = f"{sum(model.nr_weights for model in models):,} weights"
    if len(models) == 1:
        return f"{weights} in {models[0].depth} levels"
    return f"{weights} in {len(models)} trees"


def other_params(params: XRLinearParams, reads_text: bool) -> dict[str, Any]:
    """Return the parameters of the parts around the rankers, for the model metadata."""
    return {
        "indexer_params": params.to_json()["tree"],
        "tfidf_params": params.tfidf.to_json() if reads_text else None,
    }


def linear_metadata(
    X: Features,
    rankers: Sequence[XLinear],
    params: RankerParams,
    pred_params: Sequence[RankerPredParams],
    recorded: Mapping[str, Any],
    seed: int,
) -> ModelMetadata:
    """Return the metadata of a linear model: parameters, shapes, seed, versions.

    Args:
        X: features of the training documents.
        rankers: the rankers of each tree.
        params: their training parameters.
        pred_params: their prediction parameters, one block per level; those of the first tree are recorded.
        recorded: parameters of the other parts.
        seed: the training seed.
    """
    content = {
        "model": "XLinear",
        **({"nr_trees": len(rankers)} if len(rankers) > 1 else {}),
        "train_params": params.to_json(),
        "pred_params": pred_params[0].to_json(),
        **recorded,
        "nr_documents": X.nr_rows,
        "nr_features": X.nr_features,
        "nr_dense": X.nr_dense,
        "nr_labels": rankers[0].nr_labels,
        "nr_weights": sum(ranker.nr_weights for ranker in rankers),
        "seed": seed,
        "versions": package_versions(),
    }
    return ModelMetadata(content)
