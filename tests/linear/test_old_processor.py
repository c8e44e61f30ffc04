"""Rankers train and predict on processors without AVX2 and fused multiply-add.

Numba compiles for the processor of 2008 that ``NUMBA_CPU_NAME`` names. Its instructions are a part of those of every
later one, so the machine code runs here. Without fused multiply-add the last bits of weights differ, and no more.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import json, random
from xmc_tf import XRLinear

draw = random.Random(0)
topics = [draw.randrange(12) for _ in range(300)]
texts = [" ".join([*(f"word{draw.randrange(40)}" for _ in range(8)), f"topic{topic}"]) for topic in topics]
model = XRLinear.train(texts, [[f"label {topic}"] for topic in topics], threads=1, label_names=False)
print(json.dumps(model.best(texts[:50], k=3)))
"""


def best(**environment):
    """Return the best labels of a model that another process trains, and their scores."""
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**os.environ, "PYTHONPATH": str(ROOT), **environment}, text=True,
        check=True, stdout=subprocess.PIPE,
    )  # fmt: skip
    found = json.loads(run.stdout)
    return [[name for name, _ in one] for one in found], np.array([[score for _, score in one] for one in found])


def test_labels_and_scores_are_those_of_this_processor():
    labels, scores = best()
    # Numba caches machine code by processor and features, so both share a folder.
    old_labels, old_scores = best(NUMBA_CPU_NAME="nehalem", NUMBA_CPU_FEATURES="+sse4.2")
    assert [one[0] for one in old_labels] == [one[0] for one in labels]
    np.testing.assert_allclose(old_scores, scores, atol=1e-3)
    assert (old_scores != scores).any()  # compiled for another processor
