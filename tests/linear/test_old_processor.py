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
import pytest
from scipy.sparse import csr_matrix

from xmc_tf.models.xr_linear import XRLinear

pytestmark = pytest.mark.full

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = "import json; from tests.linear.test_old_processor import answers; print(json.dumps(answers()))"


def answers():
    """Return the best labels of a model that this process trains, and their scores."""
    draw = np.random.default_rng(0)
    topics = draw.integers(0, 12, 300)
    X = draw.random((300, 40)) * (draw.random((300, 40)) < 0.2) + np.eye(12, 40)[topics]
    model = XRLinear.train(csr_matrix(X, dtype=np.float32), csr_matrix(np.eye(12, dtype=np.float32)[topics]), threads=1)
    found = model.predict(csr_matrix(X[:50], dtype=np.float32), only_topk=3, threads=1)
    return found.indices.reshape(50, 3).tolist(), found.data.reshape(50, 3).tolist()


def test_labels_and_scores_are_those_of_this_processor():
    labels, scores = map(np.array, answers())
    # Numba caches machine code by processor and features, so both share a folder.
    environment = {"PYTHONPATH": str(ROOT), "NUMBA_CPU_NAME": "nehalem", "NUMBA_CPU_FEATURES": "+sse4.2"}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=os.environ | environment, text=True, check=True, stdout=subprocess.PIPE
    )
    old_labels, old_scores = map(np.array, json.loads(run.stdout))
    np.testing.assert_array_equal(old_labels[:, 0], labels[:, 0])
    np.testing.assert_allclose(old_scores, scores, atol=1e-3)
    assert (old_scores != scores).any()  # compiled for another processor
