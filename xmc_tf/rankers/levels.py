"""Training data of rankers, and their levels: all of a tree, those above a cut (a matcher), or below it (a ranker)."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csc_matrix, spmatrix

from xmc_tf.common.errors import InputError
from xmc_tf.data import Features
from xmc_tf.params import (
    LinearChainPredParams,
    LinearLevelParams,
    PredictionOptions,
    RankerParams,
    RankerPredParams,
    override_levels,
    per_level,
)
from xmc_tf.rankers.problems import (
    LevelProblem,
    cost_chain,
    label_chain,
    matched_documents,
    sorted_csc,
    user_matching,
)
from xmc_tf.tree import LabelTree
from xmc_tf.tree.grouping import cluster_matrix, upper_splits


def whole_chain(chain: Sequence[spmatrix] | None, nr_labels: int, params: RankerParams) -> list[csc_matrix]:
    """Return the cluster matrices from a single root down; levels are added above several nodes at the top."""
    if not chain:
        return [cluster_matrix(np.array([0, nr_labels]))]
    matrices = [sorted_csc(clusters) for clusters in chain]
    for t, clusters in enumerate(matrices):
        last = t + 1 == len(matrices)
        below = nr_labels if last else matrices[t + 1].shape[1]
        if clusters.shape[0] != below:
            raise InputError(
                f"matrix {t} of the cluster chain does not fit {'the labels' if last else 'the next'}",
                expected=f"{below:,} rows", received=f"{clusters.shape[0]:,} × {clusters.shape[1]:,}",
            )  # fmt: skip
    min_codes = 1 if params.shallow else params.min_codes  # 1: no level between them and the root
    return [*map(cluster_matrix, upper_splits(matrices[0].shape[1], params.nr_splits, min_codes)), *matrices]


def trained_levels(params: RankerParams, depth: int) -> slice:
    """Return the levels chosen by ``mode`` (a "matcher" is all but the last ``ranker_level``, a "ranker" these)."""
    if params.mode == "full-model":
        return slice(0, depth)
    most = depth - 1 if params.mode == "matcher" else depth
    if params.ranker_level > most:
        raise InputError(
            f"the tree has no {params.mode} with ranker_level {params.ranker_level}",
            expected=f"ranker_level from 1 to {most}, for {depth} levels" if most else "a tree of two levels or more",
            received=str(params.ranker_level), fix="lower ranker_level, or train the full model",
        )  # fmt: skip
    cut = depth - params.ranker_level
    return slice(0, cut) if params.mode == "matcher" else slice(cut, depth)


def level_pred_params(
    params: RankerParams, pred_params: RankerPredParams, depth: int, options: PredictionOptions
) -> RankerPredParams:
    """Return the prediction parameters with one block for each trained level, overridden by ``options``."""
    nr_trained = len(range(depth)[trained_levels(params, depth)])
    chain = override_levels(pred_params.hlm_args.model_chain, nr_trained, options)
    return dataclasses.replace(pred_params, hlm_args=LinearChainPredParams(model_chain=chain))


class Levels:
    """The training problems of a tree's levels, the top first; ``params`` also chooses the levels that are trained."""

    def __init__(
        self, Y: spmatrix, chain: Sequence[spmatrix] | None, R: spmatrix | None, params: RankerParams,
        user_negatives: Mapping[int, spmatrix] | None,
    ) -> None:  # fmt: skip
        tree = whole_chain(chain, Y.shape[1], params)
        part = trained_levels(params, len(tree))
        self.labels = label_chain(Y, tree)[part]
        self.costs = cost_chain(Y, R, tree, params.rel_mode, params.rel_norm)[part]
        self.users = user_matching(user_negatives, tree)[part]
        self.clusters = tree[part]
        self.params: Sequence[LinearLevelParams] = per_level(params.hlm_args.model_chain, self.depth, "model_chain")
        self.schemes: Sequence[str] = per_level(params.hlm_args.neg_mining_chain, self.depth, "neg_mining_chain")

    @property
    def depth(self) -> int:
        """Number of levels that are trained."""
        return len(self.clusters)

    def waits(self, t: int) -> bool:
        """Return whether level ``t`` learns from mistakes of the levels above, which are then trained first."""
        return t > 0 and "man" in self.schemes[t]

    def runs(self) -> list[range]:
        """Return the levels as runs of neighbours that can be trained at the same time."""
        starts = [t for t in range(self.depth) if t == 0 or self.waits(t)]
        return [range(a, b) for a, b in zip(starts, [*starts[1:], self.depth], strict=True)]

    def problem(self, t: int, predicted: spmatrix | None = None) -> LevelProblem:
        """Return the training problem of level ``t``, with predictions of the levels above if it waits for them."""
        matched = None
        if self.clusters[t].shape[1] > 1:
            # The first level of a ranker has several parents, but no level above with their labels.
            teacher = self.labels[t - 1] if t > 0 else sorted_csc(self.labels[0] @ self.clusters[0])
            matched = matched_documents(self.schemes[t], teacher, predicted, self.users[t])
        covered = matched is None or "tfn" in self.schemes[t]
        return LevelProblem(self.labels[t], self.clusters[t], matched, self.costs[t], covered, self.params[t])


@dataclass(frozen=True, eq=False)
class RankerData:
    """The documents, labels and trees to train on; only rank 0's ``R`` and ``user_negatives`` are read."""

    X: Features  # the same on all ranks; best memory-mapped from the same files
    Y: spmatrix  # documents × labels; an entry makes the label positive
    trees: Sequence[LabelTree]
    R: spmatrix | None = None  # relevance of the positives, for cost-sensitive training
    user_negatives: Mapping[int, spmatrix] | None = None  # see `problems.user_matching`

    def levels(self, params: RankerParams) -> list[Levels]:
        """Return the training problems of the levels of each tree."""
        return [self.levels_of(tree, params) for tree in self.trees]

    def levels_of(self, tree: LabelTree, params: RankerParams) -> Levels:
        """Return the training problems of the levels of one of the trees."""
        return Levels(self.Y, tree.to_chain(), self.R, params, self.user_negatives)
