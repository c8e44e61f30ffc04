"""Tests that a team of ranks trains a wide cluster to the bytes of a single process, even after a kill."""

import os
import signal

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from tests.distributed.launch import mpiexec, python, wait_for
from tests.linear.cases import dense_rows, sparse_rows
from xmc_tf.data import save_matrix
from xmc_tf.linear.distributed.work_folder import work_path

pytestmark = pytest.mark.distributed
PROGRAM, DOCUMENTS, LABELS = "wide_training.py", 300, 60


def test_another_team_resumes_after_a_kill(tmp_path):
    rng = np.random.default_rng(0)
    save_matrix(tmp_path / "X.npz", sparse_rows(DOCUMENTS, 60))
    save_matrix(tmp_path / "E.npy", dense_rows(DOCUMENTS))
    rows, columns = np.repeat(np.arange(DOCUMENTS), 2), rng.integers(0, LABELS, 2 * DOCUMENTS)
    Y = csr_matrix((np.ones(len(rows), np.float32), (rows, columns)), shape=(DOCUMENTS, LABELS))
    Y.data[:] = 1
    save_matrix(tmp_path / "Y.npz", Y)

    def flags(model):
        data = ["-x", tmp_path / "X.npz", tmp_path / "E.npy", "-y", tmp_path / "Y.npz", "-m", model]
        return [str(flag) for flag in [*data, "--max-leaf-size", 20, "--nr-splits", 4, "-n", 1]]

    def contents(model):
        return {str(one.relative_to(model)): one.read_bytes() for one in sorted(model.rglob("*")) if one.is_file()}

    python(PROGRAM, "0", *flags(tmp_path / "one"))
    states = work_path(tmp_path / "over ranks") / "wide"

    def kill(folder):
        wait_for(lambda: list(states.glob("*/*.2.npz")), seconds=120, what="two steps of a course")
        os.kill(int((folder / "1.pid").read_text()), signal.SIGKILL)

    broken = mpiexec(PROGRAM, "0.5", *flags(tmp_path / "over ranks"), world=2, during=kill, check=False, timeout=200)
    assert broken.returncode not in (0, None)
    again = mpiexec(PROGRAM, "0", *flags(tmp_path / "over ranks"), world=3)
    assert max(rank.result["members"] for rank in again.ranks) == 2
    assert any(step > 2 for rank in again.ranks for _, step in rank.result["begun"])
    assert contents(tmp_path / "over ranks") == contents(tmp_path / "one")
