"""The levels of a tree that are trained: all, those above a cut (a matcher), or those below it (a ranker)."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from scipy.sparse import csc_matrix, spmatrix

from xmc_tf.common.errors import InputError
from xmc_tf.params import (
    LinearChainPredParams,
    PredictionOptions,
    RankerParams,
    RankerPredParams,
    override_levels,
)
from xmc_tf.rankers.problems import sorted_csc
from xmc_tf.tree.grouping import cluster_matrix, upper_splits


def whole_chain(chain: Sequence[spmatrix] | None, nr_labels: int, params: RankerParams) -> list[csc_matrix]:
    """Return the cluster matrices from a single root down.

    Args:
        chain: matrices of a tree, the top first. If the first has several columns, levels are added above: each
            ``nr_splits`` neighbours get one parent, until at most ``min_codes`` nodes are left, which become the
            root's children (with ``shallow``, immediately). None: all labels are the root's children.
        nr_labels: number of columns of Y.
        params: ``nr_splits``, ``min_codes`` and ``shallow``.
    """
    if not chain:
        return [cluster_matrix(np.array([0, nr_labels]))]
    matrices = [sorted_csc(clusters) for clusters in chain]
    for t, clusters in enumerate(matrices):
        below = nr_labels if t + 1 == len(matrices) else matrices[t + 1].shape[1]
        if clusters.shape[0] != below:
            raise InputError(
                f"matrix {t} of the cluster chain does not fit "
                + ("the labels" if t + 1 == len(matrices) else "the next"),
                expected=f"{below:,} rows",
                received=f"{clusters.shape[0]:,} × {clusters.shape[1]:,}",
            )
    min_codes = 1 if params.shallow else params.min_codes  # 1: no level between them and the root
    return [*map(cluster_matrix, upper_splits(matrices[0].shape[1], params.nr_splits, min_codes)), *matrices]


def trained_levels(params: RankerParams, depth: int) -> slice:
    """Return the levels that ``mode`` and ``ranker_level`` choose.

    Args:
        params: mode "full-model", "matcher" (all but the last ``ranker_level`` levels) or "ranker" (only those).
        depth: number of levels of the tree.
    """
    if params.mode == "full-model":
        return slice(0, depth)
    most = depth - 1 if params.mode == "matcher" else depth
    if params.ranker_level > most:
        raise InputError(
            f"the tree has no {params.mode} with ranker_level {params.ranker_level}",
            expected=f"ranker_level from 1 to {most}, for {depth} levels" if most else "a tree of two levels or more",
            received=str(params.ranker_level),
            fix="lower ranker_level, or train the full model",
        )
    cut = depth - params.ranker_level
    return slice(0, cut) if params.mode == "matcher" else slice(cut, depth)


def level_pred_params(
    params: RankerParams, pred_params: RankerPredParams, depth: int, options: PredictionOptions
) -> RankerPredParams:
    """Return the prediction parameters with one block for each level that is trained.

    Args:
        params: say which levels of the tree are trained.
        pred_params: one block for all levels, or one per level.
        depth: number of levels of the tree.
        options: options of the search that override ``pred_params``.
    """
    nr_trained = len(range(depth)[trained_levels(params, depth)])
    chain = override_levels(pred_params.hlm_args.model_chain, nr_trained, options)
    return dataclasses.replace(pred_params, hlm_args=LinearChainPredParams(model_chain=chain))
