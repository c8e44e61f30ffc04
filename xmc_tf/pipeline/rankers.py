"""The rankers' step: in memory by one process, sub-problem by sub-problem by many."""

from pathlib import Path
from typing import Any

from scipy.sparse import spmatrix

from xmc_tf.data import Features
from xmc_tf.linear.distributed.reporting import reported
from xmc_tf.linear.distributed.stage import RankerData, rankers_over_ranks
from xmc_tf.linear.fit import train_rankers
from xmc_tf.params import RankerParams, RankerPredParams
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.tree import LabelTree


def rankers_of(
    X: Features,
    Y: spmatrix,
    tree: LabelTree,
    params: RankerParams,
    pred_params: RankerPredParams,
    communicator: Communicator,
    folder: Path,
    *,
    threads: int = -1,
    seed: int = 0,
    logdir: str | None = None,
) -> dict[str, Any]:
    """Train the rankers and write them to ``folder/ranker``; all ranks must call it.

    Args:
        X: all documents × features, mapped from the same files on all ranks.
        Y: all documents × labels.
        tree: over the labels.
        params: of the training.
        pred_params: how they predict where they are not told otherwise; one block a level.
        communicator: the ranks.
        folder: which all ranks see.
        threads: of each rank.
        seed: of the solvers' visiting orders.
        logdir: TensorBoard's; see ``reported``.

    Returns:
        The same on all ranks: how many levels, features and weights there are.
    """

    if communicator.size > 1:
        # The stage's folder is of these inputs alone, and so is what an interrupted run has left in it.
        model = rankers_over_ranks(
            communicator, folder / "ranker", RankerData(X, Y, tree), key="rankers", params=params,
            pred_params=pred_params, threads=threads, seed=seed, logdir=logdir,
        )  # fmt: skip
    else:
        with reported(logdir, communicator):
            model = train_rankers(
                X, Y, tree.to_chain(), params=params, pred_params=pred_params, threads=threads, seed=seed
            )  # fmt: skip
        model.save(folder / "ranker")
    return {
        "nr_features": model.nr_features,
        "nr_dense": model.nr_dense,
        "nr_weights": model.nr_weights,
        "said": f"{model.nr_weights:,} weights in {model.depth} levels",
    }
