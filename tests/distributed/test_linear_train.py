"""Tests that linear training over ranks writes the bytes of a single process, even after kills."""

import os
import random
import re
import signal
import time

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from tests.distributed.launch import mpiexec, python, wait_for
from tests.distributed.on_hosts import rankers
from tests.files import contents
from tests.linear.cases import dense_rows, sparse_rows
from xmc_tf.data import save_matrix
from xmc_tf.rankers.distributed.work_folder import work_path

pytestmark = pytest.mark.distributed
PROGRAM = "linear_training.py"
# The stage in which a training is killed, up to a second after its start, and the ranks; None for a random one.
KILLED = [("solving", [0, 1]), ("joining", None)]
DOCUMENTS, LABELS = 300, 400


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Write sparse and dense features, labels, and relevance."""
    folder, rng = tmp_path_factory.mktemp("corpus"), np.random.default_rng(0)
    save_matrix(folder / "X.npz", sparse_rows(DOCUMENTS, 60))
    save_matrix(folder / "X1.npz", sparse_rows(DOCUMENTS, 60, seed=1))
    save_matrix(folder / "E.npy", dense_rows(DOCUMENTS))
    rows = np.repeat(np.arange(DOCUMENTS), 3)
    columns = np.minimum(LABELS * rng.random(len(rows)) ** 2, LABELS - 1).astype(int)
    Y = csr_matrix((np.ones(len(rows), np.float32), (rows, columns)), shape=(DOCUMENTS, LABELS))
    Y.data[:] = 1
    save_matrix(folder / "Y.npz", Y)
    return folder


def flags(corpus, model, *more, X="X.npz"):
    """Return flags for small clusters, with which the model must be the same on any number of ranks."""
    data = ["-x", corpus / X, corpus / "E.npy", "-y", corpus / "Y.npz", "-m", model]
    shape = ["--max-leaf-size", 6, "--nr-splits", 4, "-ns", "tfn+man", "-n", 1, "--beam-size", 3]
    return [str(flag) for flag in [*data, *shape, *more]]


@pytest.fixture(scope="module")
def one_process(corpus, tmp_path_factory):
    """Return all files of the model that a single process trains."""
    model = tmp_path_factory.mktemp("one") / "model"
    python(PROGRAM, "0", *flags(corpus, model))
    found = contents(model)
    assert {"params.json", "tree/C0.npz", "ranker/ranker/0.model/W.npz"} <= set(found)
    return found


@pytest.fixture(scope="module")
def two_trees(corpus, tmp_path_factory):
    """Return all files of the model over two trees that a single process trains."""
    model = tmp_path_factory.mktemp("trees") / "model"
    python(PROGRAM, "0", *flags(corpus, model, "--trees", 2))
    found = contents(model)
    assert "ensemble/1/ranker/ranker/0.model/W.npz" in found
    return found


def test_mpi_ranks_write_the_bytes_of_one_process(corpus, one_process, tmp_path):
    more = ["-mwf", "0.3", "-nst", "8", "--verbose-level", "3"]
    run = mpiexec(PROGRAM, "0", *flags(corpus, tmp_path / "model", *more), world=3)
    assert contents(tmp_path / "model") == one_process
    assert not work_path(tmp_path / "model").exists()
    # No rank needs TensorFlow.
    assert [(rank.result["done"], rank.result["tensorflow"]) for rank in run.ranks] == [(True, False)] * 3
    assert len(run.ranks[1].output.splitlines()) == 1
    # Each rank's share of the rankers is listed, and all of it was solved once.
    said = re.findall(r"rank (\d) solved (\d+) of (\d+) sub-problems .* and waited [\d.]+ s", run.ranks[0].output)
    assert [int(rank) for rank, _, _ in said] == [0, 1, 2] * (len(said) // 3)
    assert sum(int(own) for _, own, _ in said) == sum(int(total) for _, _, total in said[::3]) > 0


def test_ranks_of_one_command_train_the_model_of_its_module(features, one_model, tmp_path):
    mpiexec("module:xmc_tf", "linear", "train", *map(str, rankers(features, tmp_path / "model")[2:]))
    assert contents(tmp_path / "model") == one_model


@pytest.mark.full
def test_after_a_kill_all_ranks_stop_and_the_same_command_resumes(corpus, two_trees, tmp_path):
    seed = os.environ.get("XMC_TF_TEST_SEED", "0")
    chance, work = random.Random(seed), work_path(tmp_path / "model")
    command = flags(corpus, tmp_path / "model", "--trees", 2)
    for number, (phase, victims) in enumerate(KILLED):
        marks, hold = tmp_path / f"marks-{number}", tmp_path / f"hold-{number}"
        marks.mkdir()
        victims = victims or [chance.randrange(2)]
        after = chance.random()

        def kill(folder, phase=phase, victims=victims, after=after, marks=marks, hold=hold):
            wait_for((marks / phase).exists, 100, phase)
            hold.touch()  # the stage does not end before the kill
            time.sleep(after)
            for victim in victims:
                os.kill(int((folder / f"{victim}.pid").read_text()), signal.SIGKILL)
            hold.unlink()

        run = mpiexec(
            PROGRAM,
            "0.1",
            *command,
            world=2,
            during=kill,
            check=False,
            timeout=150,
            env={"XMC_TF_TEST_MARKS": str(marks), "XMC_TF_TEST_HOLD": str(hold)},
        )
        print(f"seed {seed}: {phase}, {after:.2f} s in: ranks {victims} killed")
        assert run.returncode not in (0, None), run.describe()
        assert run.leftovers == 0
        assert "signal 9 (Killed)" in run.launcher
        assert f"process rank {victims[0]}" in run.launcher or len(victims) > 1
        assert not (tmp_path / "model").exists()
        assert work.exists()
        if number:
            assert "resuming from" in run.ranks[0].output
    # One process resumes the training of two ranks.
    again = python(PROGRAM, "0", *command)
    assert "resuming from" in again.ranks[0].output
    assert contents(tmp_path / "model") == two_trees


def test_ranks_with_different_files_stop_before_work_begins(corpus, tmp_path):
    (corpus / "X0.npz").write_bytes((corpus / "X.npz").read_bytes())
    run = mpiexec(PROGRAM, "0", *flags(corpus, tmp_path / "model", X="X{rank}.npz"), check=False, timeout=60)
    assert run.returncode not in (0, None)
    said = "\n".join(rank.output for rank in run.ranks)
    assert "ranks received different features" in said
    assert f"rank 1 on {os.uname().nodename}" in said
    assert "checksum" in said
    assert not work_path(tmp_path / "model").exists()


def test_invalid_values_in_one_ranks_part_of_a_file_stop_all_ranks(corpus, tmp_path):
    wide = dense_rows(DOCUMENTS, 4000)  # large enough for a shared scan
    wide[-1, 7] = np.nan
    save_matrix(tmp_path / "wide.npy", wide)
    model = tmp_path / "model"
    data = ["-x", tmp_path / "wide.npy", "-y", corpus / "Y.npz", "-m", model]
    run = mpiexec("module:xmc_tf", "linear", "train", *map(str, data), check=False, timeout=60)
    said = "\n".join(rank.output for rank in run.ranks)
    assert run.returncode == 2
    assert f"row {DOCUMENTS - 1}, column 7" in said
    assert "wide.npy" in said
    assert "Traceback" not in said
    assert not work_path(model).exists()
    assert not model.exists()


@pytest.mark.full
def test_no_rank_holds_all_weights(tmp_path):
    """Ranks limited to 96 MB train 200 MB of weights, which a single process could not do in memory."""
    run = mpiexec("limited_training.py", "over ranks", str(tmp_path), world=2)
    for rank in run.ranks:
        assert rank.result["weights"] > 2 * rank.result["limit"]
    alone = python("limited_training.py", "in memory", str(tmp_path), check=False)
    assert alone.returncode == 1
    assert "MemoryError" in alone.ranks[0].output
