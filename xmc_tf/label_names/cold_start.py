"""The worth of label names before any document is labelled, learned from documents of other vocabularies.

Models begin with these numbers, and move away from them with each labelled document.
``python -m benchmarks.cold_start --encoder FOLDER --write`` learns them, and writes them to ``cold_start.json``.
"""

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from xmc_tf.common.json_files import read_json

FILE = Path(__file__).with_name("cold_start.json")


class ColdStart(NamedTuple):
    priors: np.ndarray  # float64 [kinds, grades]: the precision of matches of names; see `match_precision`
    weights: dict[str, float]  # by the name of a number in `xmc_tf.fusion.weighted_numbers`; those of all others are 0
    encoded: dict[str, float]  # the same, for models of names alone that compare them with texts by an encoder

    def text(self) -> str:
        """Return the numbers as the content of ``cold_start.json``."""
        weights, encoded = (
            {name: round(weight, 4) for name, weight in some.items()} for some in (self.weights, self.encoded)
        )
        content = {"weights": weights, "encoded": encoded, "priors": np.round(self.priors, 4).tolist()}
        return json.dumps(content, indent=0) + "\n"


@cache
def cold_start() -> ColdStart:
    content = read_json(FILE)
    return ColdStart(np.array(content["priors"], np.float64), content["weights"], content["encoded"])
