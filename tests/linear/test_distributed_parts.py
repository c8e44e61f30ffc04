"""The parts of training over ranks: cuts, claims, joined files, threads, and the work folder."""

import contextlib
import os
import resource
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csc_matrix, random_array

from tests.collective.threads import on_ranks, results_of
from tests.files import contents
from tests.refusals import refused
from xmc_tf.rankers.distributed import solving, training, work_folder
from xmc_tf.rankers.distributed.solving import Claims, write_block
from xmc_tf.rankers.distributed.work_folder import open_work_folder, work_path
from xmc_tf.rankers.kernels.emit import WeightColumns
from xmc_tf.ranks.solo import Solo
from xmc_tf.store.arrays import save_sparse


@pytest.mark.parametrize("count", [0, 2, 63])
def test_each_item_is_claimed_once_from_the_front(count, tmp_path):
    taken, together = [], threading.Barrier(6)

    def take(claims):
        mine = []
        together.wait()
        while (number := claims.take()) is not None:
            mine.append(number)
        taken.append(mine)

    ranks = [Claims(tmp_path / "claims", count) for _ in range(3)]  # of two threads each
    threads = [threading.Thread(target=take, args=(ranks[i % 3],)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(number for mine in taken for number in mine) == list(range(count))
    assert all(mine == sorted(mine) for mine in taken)


def columns_of(matrix, labels):
    """Return a block of these columns, in their order."""
    parts = [matrix[:, [label]] for label in labels]
    counts = [part.nnz for part in parts]
    return WeightColumns(
        np.array(labels, np.int64),
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        np.concatenate([np.zeros(0, np.int32), *(part.indices for part in parts)]).astype(np.int32),
        np.concatenate([np.zeros(0, np.float32), *(part.data for part in parts)]).astype(np.float32),
        np.array([len(labels)]),
    )


@given(
    st.integers(1, 30),
    st.integers(0, 2**30),
    st.integers(1, 6),
    st.booleans(),
)
@settings(deadline=None, max_examples=20)
def test_joined_blocks_are_the_whole_matrix(tmp_path_factory, labels, seed, blocks, in_order):
    folder, rng = tmp_path_factory.mktemp("join"), np.random.default_rng(seed)
    W = csc_matrix(random_array((12, labels), density=0.3, rng=rng, dtype=np.float32))
    W.sort_indices()
    order = np.arange(labels) if in_order else rng.permutation(labels)
    paths = [folder / f"{number}.npz" for number in range(blocks)]
    for path, part in zip(paths, np.array_split(order, blocks), strict=True):
        write_block(path, [columns_of(W, half) for half in np.array_split(part, 2)])
    save_sparse(folder / "expected", W)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solving, "_piece_entries", lambda _: 5)
        solving.join_blocks(paths, W.shape, folder / "W")
    assert contents(folder / "W") == contents(folder / "expected")


@pytest.mark.parametrize(
    ("cores", "ranks", "wanted", "given"),
    [
        ([{0, 1, 2, 3}] * 2, 2, [2, 2], -1),
        ([{0}, {1}], 2, [1, 1], -1),
        ([{0, 1}, {2, 3}], 2, [2, 2], -1),
        ([{0}] * 3, 3, [1, 1, 1], -1),
        ([{0, 1}] * 2, 2, [5, 5], 5),
    ],
)
def test_ranks_of_one_host_share_its_cores(cores, ranks, wanted, given, monkeypatch):
    here = threading.local()
    monkeypatch.setattr(training.os, "sched_getaffinity", lambda _: here.cores)
    monkeypatch.setattr(training, "thread_count", lambda _: len(here.cores))

    def work(communicator):
        here.cores, communicator.host = cores[communicator.rank], "one"
        return training.threads_of_rank(communicator, given)

    assert results_of(on_ranks(ranks, work)) == wanted


def test_more_blocks_than_files_may_be_open(tmp_path):
    W = csc_matrix(random_array((12, 90), density=0.3, rng=np.random.default_rng(0), dtype=np.float32))
    W.sort_indices()
    paths = [tmp_path / f"{label}.columns" for label in range(90)]
    for label, path in enumerate(paths):
        write_block(path, [columns_of(W, [label])])
    save_sparse(tmp_path / "expected", W)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as files:
        for _ in range(200):  # of the program that trains
            files.enter_context(paths[0].open("rb"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 40, before[1]))
        try:
            solving.join_blocks(paths, W.shape, tmp_path / "W")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert contents(tmp_path / "W") == contents(tmp_path / "expected")


class Stopped(BaseException):
    """An exception in place of a kill: no code after it runs."""


def stop(*_arguments, **_options):
    raise Stopped


def test_a_folder_whose_creation_was_interrupted_can_be_opened(tmp_path, monkeypatch):
    stopped = pytest.raises(Stopped)
    with monkeypatch.context() as patched, stopped:
        patched.setattr(work_folder.json, "dumps", stop)
        open_work_folder(Solo(), tmp_path / "model", "key")
    # A kill, unlike an exception, leaves the unfinished file too.
    (work_path(tmp_path / "model") / ".work-x7a1b2c3.json").write_text("{")
    work = open_work_folder(Solo(), tmp_path / "model", "key")
    assert work.blocks.is_dir()
    assert (work.path / "work.json").is_file()


@pytest.mark.parametrize("left", ["work.json", "blocks/0-1"])
def test_the_rest_of_an_interrupted_removal_is_not_a_work_folder(tmp_path, monkeypatch, left):
    work = open_work_folder(Solo(), tmp_path / "model", "key")
    (work.blocks / "0-1").write_text("solved")

    def remove_all_but_one(folder, **_options):
        for path in [path for path in folder.rglob("*") if path.is_file() and path != folder / left]:
            path.unlink()
        stop()

    stopped = pytest.raises(Stopped)
    with monkeypatch.context() as patched, stopped:
        patched.setattr(work_folder.shutil, "rmtree", remove_all_but_one)
        work.remove()
    work = open_work_folder(Solo(), tmp_path / "model", "key")
    assert not list(work.blocks.iterdir())
    work.remove()
    assert not list(tmp_path.iterdir())


def test_a_folder_of_another_program_is_kept(tmp_path):
    path = work_path(tmp_path / "model")
    path.mkdir()
    (path / "letter.txt").write_text("dear")
    refused("is needed for intermediate results", open_work_folder, Solo(), tmp_path / "model", "key")
    assert (path / "letter.txt").read_text() == "dear"
