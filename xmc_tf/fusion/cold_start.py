"""The worth of label names before any document is labelled, learned from documents of other vocabularies.

``python -m benchmarks.cold_start --write`` learns these numbers, and writes them to ``cold_start.json``.
"""

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from xmc_tf.common.json_files import read_json
from xmc_tf.fusion.weighted_numbers import NAMES

FILE = "cold_start.json"


class ColdStart(NamedTuple):
    priors: np.ndarray  # float64 [kinds, grades]: the precision of matches of names; see `match_precision`
    weights: np.ndarray  # float64, one for each of weighted_numbers.NAMES; 0 for numbers that were unknown then

    def text(self) -> str:
        """Return the numbers as the content of ``cold_start.json``."""
        weights = {name: round(weight, 4) for name, weight in zip(NAMES, self.weights.tolist(), strict=True) if weight}
        return json.dumps({"weights": weights, "priors": np.round(self.priors, 4).tolist()}, indent=0) + "\n"


@cache
def cold_start() -> ColdStart:
    content = read_json(Path(__file__).with_name(FILE))
    weights = np.array([content["weights"].get(name, 0.0) for name in NAMES], np.float64)
    return ColdStart(np.array(content["priors"], np.float64), weights)
