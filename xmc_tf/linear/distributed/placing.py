"""From the work folder to the model's folder, without anybody reading the weights."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xmc_tf.linear.disk import level_folder, write_parameters
from xmc_tf.linear.distributed.work_folder import WorkFolder
from xmc_tf.linear.text_ranker import write_model
from xmc_tf.linear.xlinear import XLinear
from xmc_tf.tree import LabelTree


def place_model(
    folder: Path, work: WorkFolder, model: XLinear, tree: LabelTree, names: list[str] | None, facts: Mapping[str, Any]
) -> None:
    """Writes the model's folder, completely or not at all.

    Args:
        folder: the model's.
        work: where the weights are; it stays as it is.
        model: as ``train_over_ranks`` gave it.
        tree: over what the model predicts.
        names: of what the model predicts, where they have any.
        facts: for ``params.json``.
    """

    def place_tfidf(part: Path) -> None:
        shutil.copytree(work.features, part)

    write_model(
        folder, tree, names, facts, lambda part: place_rankers(part, work, model),
        place_tfidf if work.features.is_dir() else None,
    )  # fmt: skip


def place_rankers(part: Path, work: WorkFolder, model: XLinear) -> None:
    """Fills a folder of rankers: parameters again, weights by a second name."""
    write_parameters(model, part)
    for t in range(model.depth):
        _link(work.weights(t), level_folder(part, t) / "W.npz")


def _link(source: Path, target: Path) -> None:
    """A second name for a file; a copy on disks that have one name a file."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
