"""Learning curves of a level, stored beside its checkpoints: losses, and metrics of validation documents."""

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
_POINTS = 200  # maximum number of points of the loss

Points = list[tuple[int, float]]


class LevelCurves:
    """The learning curves of a level from its first step on, even if training was interrupted."""

    def __init__(self, curves: Mapping[str, Points] | None = None) -> None:
        self.by_name: dict[str, Points] = dict(curves or {})

    @classmethod
    def load(cls, folder: Path, steps: int) -> Self:
        """Return the curves in a folder up to the step of the checkpoint; no curves if there is no readable file."""
        try:
            found = read_json(folder / _FILE, foreign=True)
            return cls(
                {str(name): [(int(at), float(y)) for at, y in points if at <= steps] for name, points in found.items()}
            )
        except (InputError, OSError, TypeError, ValueError):  # curves are no reason to stop training
            return cls()

    def save(self, folder: Path) -> None:
        with atomic_file(folder / _FILE) as part:
            part.write_text(json.dumps(self.by_name), encoding="utf-8")

    def add_losses(self, step: int, losses: Sequence[float], total: int) -> None:
        """Add the losses of the steps up to this one, as means over neighbouring steps."""
        if not losses:
            return
        first, points = step - len(losses), self.by_name.setdefault(_LOSS, [])
        parts = min(len(losses), math.ceil(len(losses) / max(1, math.ceil(total / _POINTS))))
        for part in np.array_split(np.asarray(losses), parts):
            first += len(part)
            points.append((first, round(float(part.mean()), 6)))

    def add_measures(self, step: int, measures: Mapping[str, float]) -> None:
        """Add metrics of the validation documents, in percent."""
        for name, value in measures.items():
            self.by_name.setdefault(name, []).append((step, round(value, 4)))


def named_curves(levels: Sequence[LevelCurves]) -> dict[str, Points]:
    """Return the curves of all levels by name: "training loss, level 2", "validation precision in %, level 2: P@1"."""
    out: dict[str, Points] = {}
    for number, level in enumerate(levels, 1):
        for name, points in level.by_name.items():
            title = "training loss" if name == _LOSS else "validation precision in %"
            out[f"{title}, level {number}" + ("" if name == _LOSS else f": {name}")] = points
    return out
