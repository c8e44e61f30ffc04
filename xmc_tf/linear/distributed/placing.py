"""From the work folder to the model's folder, without anybody reading the weights."""

import os
import shutil
from pathlib import Path

from xmc_tf.linear.disk import level_folder, write_parameters
from xmc_tf.linear.distributed.work_folder import WorkFolder
from xmc_tf.linear.xlinear import XLinear


def place_rankers(part: Path, work: WorkFolder, model: XLinear) -> None:
    """Fills a folder of rankers: parameters again, weights by a second name."""
    write_parameters(model.levels, part)
    for t in range(model.depth):
        _link(work.weights(t), level_folder(part, t) / "W.npz")


def _link(source: Path, target: Path) -> None:
    """A second name for a file; a copy on disks that have one name a file."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
