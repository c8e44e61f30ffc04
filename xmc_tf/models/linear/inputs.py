"""The inputs of the linear training command: settings, files read and checked, and the tree made from them."""

import argparse
import dataclasses
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Self

from scipy.sparse import csc_matrix, spmatrix

from xmc_tf.common.errors import InputError
from xmc_tf.data import Features, TextFile, as_features, check_pair, load_matrix
from xmc_tf.linear.modes import level_pred_params
from xmc_tf.linear.problems import check_relevance, sorted_csc
from xmc_tf.models.linear.training import check_one_tree, fit_tfidf, other_params
from xmc_tf.params import PredictionOptions, RankerPredParams, TfidfParams, XRLinearParams, with_effect
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.tree import LabelTree, load_chain
from xmc_tf.tree.distributed_kmeans import build_tree_over_ranks

if TYPE_CHECKING:
    from xmc_tf.features import Tfidf

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class LinearSettings:
    """The settings of the command line and of its parameter file.

    Args:
        arguments: the command line.
        params: options of features, tree and rankers.
        overrides: prediction options of the command line, which override ``params.prediction``.
    """

    arguments: argparse.Namespace
    params: XRLinearParams
    overrides: PredictionOptions

    @property
    def recorded(self) -> dict[str, Any]:
        """Parameters of the parts around the rankers, for the model metadata."""
        methods = self.embedding_methods
        return {
            **other_params(self.params, reads_text=bool(self.arguments.text_path)),
            **({} if methods == ("pifa", "pifa") else {"label_embeddings": methods}),
        }

    @property
    def embedding_methods(self) -> tuple[str, str]:
        """The label embeddings that the labels are clustered by, above the sub-trees and within them."""
        return self.arguments.meta_label_embedding_method, self.arguments.sub_label_embedding_method

    @property
    def decisive(self) -> dict[str, Any]:
        """All settings that the model depends on, beside the files; the number of threads is not one of them."""
        ours = {
            name: getattr(self.arguments, name)
            for name in ("seed", "min_n_sub_tree", "meta_label_embedding_method", "sub_label_embedding_method")
        }
        blocks = {"train": self.params.ranker.to_json(), "pred": self.params.prediction.to_json(), **self.recorded}
        if self.arguments.label_names:
            ours["label_names"] = True
        if self.arguments.effort is not None:
            ours["effort"] = self.arguments.effort
        overrides = {} if self.overrides == PredictionOptions() else self.overrides.search
        # Another key instead of "wishes" would make existing work folders useless.
        return with_effect({**ours, **blocks, "wishes": overrides, "version": version("xmc_tf")})

    def pred_params_for(self, trees: Sequence[LabelTree]) -> list[RankerPredParams]:
        """Return the prediction parameters of the rankers of each tree, with one block per level."""
        ranker, prediction = self.params.ranker, self.params.prediction
        return [level_pred_params(ranker, prediction, tree.depth, self.overrides) for tree in trees]

    @property
    def files(self) -> dict[str, list[str]]:
        """The files that the model depends on."""
        a = self.arguments
        named = {
            "labels": a.label_path, "features": a.inst_path, "texts": a.text_path, "label names": a.labels,
            "vocabulary": a.vocabulary,
            "relevance": a.rel_path, "negatives of clusters": a.usn_match_path, "negatives": a.usn_label_path,
            "tree": a.code_path, "label features": a.label_feat_path,
        }  # fmt: skip
        return {what: paths if isinstance(paths, list) else [paths] for what, paths in named.items() if paths}


@dataclass(frozen=True)
class LinearInputs(LinearSettings):
    """The settings, and the files read and checked.

    Attributes:
        names: label names.
        Y: labels, documents × labels.
        texts: the documents' texts, or None.
        X: the documents' features, or None.
        lines: label names with alternative names after tabs.
    """

    names: list[str] | None
    Y: spmatrix
    texts: TextFile | None
    X: Features | None
    lines: list[str] | None = None

    def with_tfidf(self, params: TfidfParams) -> Self:
        """Return the inputs with the parameters of a fitted TF-IDF, which contain the language that was found."""
        return dataclasses.replace(self, params=dataclasses.replace(self.params, tfidf=params))


def vectorized(inputs: LinearInputs) -> "tuple[Tfidf, Features]":
    """Return the vectorizer fitted to the texts, and their features."""
    assert inputs.texts is not None
    return fit_tfidf(inputs.texts, inputs.params.tfidf, inputs.arguments.threads)


def make_trees(
    communicator: Communicator, inputs: LinearInputs, embed: Callable[[str], Features], threads: int
) -> list[LabelTree]:
    """Return the label trees: the one in a file, or those built from label features or embeddings, on all ranks.

    Args:
        communicator: the ranks.
        inputs: the inputs of the command.
        embed: makes label embeddings by the name of a method, on all ranks.
        threads: number of threads of this rank.
    """
    arguments, Y, params = inputs.arguments, inputs.Y, inputs.params.trees[0]
    if arguments.code_path:
        check_one_tree(len(inputs.params.trees), f"--code-path {arguments.code_path}")
        # With 1, the root is right above the clusters in the file.
        min_codes = 1 if inputs.params.ranker.shallow else params.min_codes
        tree = load_chain(arguments.code_path, nr_splits=params.nr_splits, min_codes=min_codes)
        if tree.nr_labels != Y.shape[1]:
            raise InputError(
                f"{arguments.code_path} is a tree of other labels",
                expected=f"{Y.shape[1]:,} labels, the columns of {arguments.label_path}",
                received=f"{tree.nr_labels:,} labels",
            )
        return [tree]
    if arguments.label_feat_path:
        own = load_matrix(arguments.label_feat_path, name="label features")
        if own.shape[0] != Y.shape[1]:
            raise InputError(
                f"{arguments.label_feat_path} does not fit the labels",
                expected=f"{Y.shape[1]:,} rows, one for each column of {arguments.label_path}",
                received=f"{own.shape[0]:,} rows",
            )
        embeddings, within = as_features(own), None
    else:
        above, below = inputs.embedding_methods
        embeddings, within = embed(above), None if above == below else partial(embed, below)
    trees = []
    for one in inputs.params.trees:
        trees.append(
            build_tree_over_ranks(
                communicator, embeddings, one, threads=threads, min_n_sub_tree=arguments.min_n_sub_tree,
                sub_embeddings=within,
            )
        )  # fmt: skip
        _LOG.info("label tree: %s", " > ".join(f"{size:,}" for size in trees[-1].level_sizes))
    return trees


def relevance(inputs: LinearInputs) -> spmatrix | None:
    """Return the relevance of the labels, if there is any and it is used."""
    path, Y, mode = inputs.arguments.rel_path, inputs.Y, inputs.params.ranker.rel_mode
    if path is None:
        return None
    if mode == "disable":
        _LOG.warning("%s has no effect without --rel-mode induce or ranker-only", path)
        return None
    R = load_matrix(path, name="relevance")
    try:
        check_relevance(sorted_csc(R), sorted_csc(Y))
    except InputError as error:
        raise InputError(
            f"{path}: {error.problem}", expected=error.expected, received=error.received, fix=error.fix
        ) from None
    return R


def user_negatives(inputs: LinearInputs) -> dict[int, spmatrix]:
    """The user's own negatives, keyed by how many levels above the labels they are."""
    arguments, Y = inputs.arguments, inputs.Y
    found: dict[int, spmatrix] = {}
    for height, path in ((0, arguments.usn_label_path), (1, arguments.usn_match_path)):
        if path is not None:
            found[height] = csc_matrix(load_matrix(path, name="negatives"))
            check_pair(Y, found[height], arguments.label_path, path)
    if 0 in found and found[0].shape[1] != Y.shape[1]:
        raise InputError(
            f"{arguments.usn_label_path} does not fit the labels",
            expected=f"{Y.shape[1]:,} columns, as in {arguments.label_path}",
            received=f"{found[0].shape[1]:,} columns",
        )
    return found


def in_order(negatives: dict[int, spmatrix], trees: Sequence[LabelTree], path: str | None) -> dict[int, spmatrix]:
    """Return negatives of clusters with their columns in the order of the tree, which renumbers the clusters."""
    if 1 not in negatives:
        return negatives
    check_one_tree(len(trees), f"{path}, which numbers the clusters of a tree,")
    order = trees[0].node_order[-1]
    if negatives[1].shape[1] != len(order):
        raise InputError(
            f"{path} does not fit the leaf clusters of the tree",
            expected=f"{len(order):,} columns, one per cluster",
            received=f"{negatives[1].shape[1]:,} columns",
            fix="give the tree that they were computed for with --code-path",
        )
    return {**negatives, 1: negatives[1][:, order]}
