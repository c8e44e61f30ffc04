"""Learning curves of a level, stored beside its checkpoints: losses, and measures of validation documents."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.atomic import atomic_file
from xmc_tf.common.files.json_files import read_json

_FILE = "curves.json"
_LOSS = "loss"
_POINTS = 200  # of the loss, at most; fewer if losses are reported less often

Points = list[tuple[int, float]]


class LevelCurves:
    """The learning curves of a level, from its first step on, also if the training was interrupted.

    Args:
        curves: (step, value) pairs by the name of the curve.
    """

    def __init__(self, curves: Mapping[str, Points] | None = None) -> None:
        self.by_name: dict[str, Points] = dict(curves or {})

    @classmethod
    def load(cls, folder: Path, steps: int) -> Self:
        """Return the curves in a folder up to a step; without curves if there is no readable file.

        Args:
            folder: the folder of the level's checkpoints.
            steps: number of steps of the checkpoint; later points are not part of this training.
        """
        try:
            found = read_json(folder / _FILE, foreign=True)
            return cls(
                {
                    str(name): [(int(step), float(value)) for step, value in points if step <= steps]
                    for name, points in found.items()
                }
            )
        except (InputError, OSError, TypeError, ValueError):  # curves are no reason to stop a training
            return cls()

    def save(self, folder: Path) -> None:
        """Write the curves into a folder.

        Args:
            folder: the folder of the level's checkpoints.
        """
        with atomic_file(folder / _FILE) as part:
            part.write_text(json.dumps(self.by_name), encoding="utf-8")

    def add_losses(self, step: int, losses: Sequence[float], total: int) -> None:
        """Add losses, as means over neighbouring steps.

        Args:
            step: the last step.
            losses: loss of each step up to this one.
            total: number of steps of the whole training.
        """
        if not losses:
            return
        first, points = step - len(losses), self.by_name.setdefault(_LOSS, [])
        parts = min(len(losses), math.ceil(len(losses) / max(1, math.ceil(total / _POINTS))))
        for part in np.array_split(np.asarray(losses), parts):
            first += len(part)
            points.append((first, round(float(part.mean()), 6)))

    def add_measures(self, step: int, measures: Mapping[str, float]) -> None:
        """Add measures of the validation documents.

        Args:
            step: the step after which they were measured.
            measures: percentages by name.
        """
        for name, value in measures.items():
            self.by_name.setdefault(name, []).append((step, round(value, 4)))


def named_curves(levels: Sequence[LevelCurves]) -> dict[str, Points]:
    """Return the curves of all levels by name.

    A name is ``"training loss, level 2"`` or ``"validation precision in %, level 2: P@1"``.

    Args:
        levels: the curves of each level, from the top.
    """
    out: dict[str, Points] = {}
    for number, level in enumerate(levels, 1):
        for name, points in level.by_name.items():
            title = "training loss" if name == _LOSS else "validation precision in %"
            out[f"{title}, level {number}" + ("" if name == _LOSS else f": {name}")] = points
    return out
