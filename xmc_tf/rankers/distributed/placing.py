"""Placing the weights of the work folder in the model's folder, without copying them."""

import os
import shutil
from pathlib import Path

from xmc_tf.rankers.disk import level_folder, write_parameters
from xmc_tf.rankers.distributed.work_folder import WorkFolder
from xmc_tf.rankers.layout.stored import write_search
from xmc_tf.rankers.xlinear import XLinear


def place_rankers(part: Path, work: WorkFolder, model: XLinear, first: int = 0) -> None:
    """Fill a folder of rankers: write its parameters, link its weights, arrange them for search.

    Args:
        part: the folder.
        work: the work folder with the weights.
        model: the rankers of a tree.
        first: number of the tree's first level in the work folder.
    """
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
