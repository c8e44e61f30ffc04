"""The rankers' stage as one call, for programs that have features, labels and a tree already."""

import logging
from collections.abc import Mapping
from pathlib import Path

from scipy.sparse import spmatrix

from xmc_tf.common.folders.placing import placed_folder
from xmc_tf.data import Features, check_pair
from xmc_tf.linear.disk import XLINEAR
from xmc_tf.linear.distributed.account import Account, accounts_table
from xmc_tf.linear.distributed.placing import place_rankers
from xmc_tf.linear.distributed.reporting import reported
from xmc_tf.linear.distributed.training import threads_of_rank, train_over_ranks
from xmc_tf.linear.distributed.work_folder import open_work_folder
from xmc_tf.linear.levels import Levels
from xmc_tf.linear.xlinear import XLinear
from xmc_tf.params import RankerParams, RankerPredParams
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks
from xmc_tf.tree import LabelTree

_LOG = logging.getLogger(__name__)


def rankers_over_ranks(
    communicator: Communicator,
    folder: Path,
    X: Features,
    Y: spmatrix,
    tree: LabelTree,
    *,
    key: str,
    params: RankerParams | None = None,
    pred_params: RankerPredParams | None = None,
    R: spmatrix | None = None,
    user_negatives: Mapping[int, spmatrix] | None = None,
    threads: int = -1,
    seed: int = 0,
    logdir: str | None = None,
) -> XLinear:
    """Trains rankers with all ranks into a folder in PECOS's form; all ranks call it together.

    The same bytes as ``train_rankers(…).save(folder)`` writes, on any number of ranks. What is done lies in
    ``<folder>.work`` until the end, where a later call with the same ``key`` finds it.

    Example:
        >>> rankers_over_ranks(choose(), Path("model/ranker"), X, Y, tree, key=digest_of_the_inputs)

    Args:
        communicator: the ranks.
        folder: where the rankers go; on a disk that all ranks share.
        X: documents × features, the same on all ranks, best mapped from the same files.
        Y: documents × labels.
        tree: over the labels.
        key: stands for all that decides what the rankers will be: inputs, parameters, seed.
        params: of the training.
        pred_params: how they predict where they are not told otherwise.
        R: relevance of the positives; only rank 0's is looked at, as with the negatives.
        user_negatives: see :func:`~xmc_tf.linear.problems.user_matching`.
        threads: of each rank; -1: its share of the host's cores.
        seed: of the orders in which the solvers visit the instances.
        logdir: TensorBoard's, for curves of what each rank does; see ``reporting.reported``.

    Returns:
        The rankers, mapped from the folder's files.
    """
    check_pair(X, Y)
    params, pred_params = params or RankerParams(), pred_params or RankerPredParams()
    run_on_all_ranks(communicator, lambda: XLINEAR.check_place(folder))
    work = open_work_folder(communicator, folder, key)
    account = Account(threads=threads_of_rank(communicator, threads))
    with reported(logdir, communicator, account):
        model = train_over_ranks(
            account.watching(communicator), work, X, lambda: Levels(Y, tree.to_chain(), R, params, user_negatives),
            pred_params=pred_params, account=account, seed=seed,
        )  # fmt: skip
    nr_dense = X.nr_dense

    def place() -> None:
        if communicator.rank == 0:
            with placed_folder(folder, XLINEAR) as part:
                place_rankers(part, work, model)

    run_on_all_ranks(communicator, place)
    table = accounts_table(communicator, account)
    if communicator.rank == 0:
        _LOG.info("%s: %s weights in %s levels\n%s", folder, f"{model.nr_weights:,}", model.depth, table)
        work.remove()
    communicator.barrier()
    return run_on_all_ranks(communicator, lambda: XLinear.load(folder, nr_dense))
