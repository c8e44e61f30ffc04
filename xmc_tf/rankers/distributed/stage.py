"""The training of rankers over ranks as one call, for programs that have features, labels and a tree."""

import logging
import os
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from xmc_tf.common.folders.model_parts import RANKERS
from xmc_tf.common.folders.placing import placed_folder
from xmc_tf.data import check_pair
from xmc_tf.params import RankerParams, RankerPredParams
from xmc_tf.rankers.disk import level_folder, write_parameters
from xmc_tf.rankers.distributed.training import threads_of_rank, train_trees_over_ranks
from xmc_tf.rankers.distributed.work_folder import WorkFolder, open_work_folder
from xmc_tf.rankers.layout.stored import write_search
from xmc_tf.rankers.levels import RankerData
from xmc_tf.rankers.xlinear import XLinear
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks


def place_rankers(part: Path, work: WorkFolder, model: XLinear, first: int = 0) -> None:
    """Fill a folder of rankers from the work folder, where the tree's levels are numbered from ``first``."""
    write_parameters(model.levels, part)
    for t in range(model.depth):
        _link(work.weights(first + t), level_folder(part, t) / "W.npz")
    write_search(part, model.levels, model.nr_dense)


def _link(source: Path, target: Path) -> None:
    """Link a file, or copy it on disks without hard links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


_LOG = logging.getLogger(__name__)


def rankers_over_ranks(
    communicator: Communicator,
    folders: Sequence[Path],
    data: RankerData,
    *,
    key: str,
    params: RankerParams | None = None,
    pred_params: Sequence[RankerPredParams] | None = None,
    threads: int = -1,
    seed: int = 0,
) -> list[XLinear]:
    """Train the rankers of several trees on all ranks, each into a folder in PECOS's format. Collective.

    The files are those of ``train_rankers(…).save(folder)``, byte for byte, on any number of ranks. ``key`` identifies
    all that the rankers depend on: a later call with the same key resumes from ``<first folder>.work``.
    """
    X = data.X
    check_pair(X, data.Y)
    params, pred_params = params or RankerParams(), pred_params or [RankerPredParams()] * len(data.trees)
    for folder in folders:
        run_on_all_ranks(communicator, partial(RANKERS.check_place, folder))
    work = open_work_folder(communicator, folders[0], key)
    models = train_trees_over_ranks(
        communicator, work, X, lambda: data.levels(params),
        pred_params=pred_params, threads=threads_of_rank(communicator, threads), seed=seed,
    )  # fmt: skip
    nr_dense = X.nr_dense

    def place() -> None:
        first = 0
        for folder, model in zip(folders, models, strict=True):
            if communicator.rank == 0:
                with placed_folder(folder, RANKERS) as part:
                    place_rankers(part, work, model, first)
            first += model.depth

    run_on_all_ranks(communicator, place)
    if communicator.rank == 0:
        weights, levels = sum(model.nr_weights for model in models), sum(model.depth for model in models)
        _LOG.info("%s: %s weights in %s levels", folders[0], f"{weights:,}", levels)
        work.remove()
    communicator.barrier()
    return run_on_all_ranks(communicator, lambda: [XLinear.load(folder, nr_dense) for folder in folders])
