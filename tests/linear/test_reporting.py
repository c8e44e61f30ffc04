"""TensorBoard curves of the ranks' work; ranks are threads of this process here."""

import threading
import time

import pytest

from tests.collective.threads import on_ranks, results_of
from tests.common.test_event_file import scalars
from xmc_tf.common.progress import WATCHERS, Progress
from xmc_tf.rankers.distributed.account import RankWork
from xmc_tf.rankers.distributed.reporting import reported

pytest.importorskip("tensorboard")


def test_each_rank_has_its_figures_and_rank_0_how_far_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr("xmc_tf.common.progress._STABLE_S", 0.05)  # what takes so short has no estimate otherwise

    accounts, worked = {}, threading.Event()

    def work(communicator):
        accounts[communicator.rank] = account = RankWork(threads=1)
        with reported(tmp_path, communicator, account, every_s=0.05):
            if communicator.rank == 0:
                with Progress("a level", total=4) as progress, Progress("another", total=9):
                    for _ in range(4):
                        time.sleep(0.1)
                        progress.add()
                worked.wait(60)  # rank 1 waits longer than it has worked, on any machine
                while accounts[1].elapsed_s < 3 * accounts[1].busy_s:
                    time.sleep(0.02)
            for _ in range(2 + communicator.rank):
                with account.busy():
                    time.sleep(0.02)
                account.solved(work=10, written=1)
            if communicator.rank == 1:
                worked.set()
            communicator.barrier()

    results_of(on_ranks(2, work))
    assert not WATCHERS
    first, second = (scalars(tmp_path / f"rank-{rank}") for rank in (0, 1))
    assert first["ranks/sub-problems done"][-1][1] == 2
    assert second["ranks/sub-problems done"][-1][1] == 3
    assert second["ranks/work done"][-1][1] == 30
    assert 0.05 < second["ranks/busy seconds"][-1][1] < second["ranks/waiting seconds"][-1][1]
    assert second["ranks/peak memory, MiB"][-1][1] > 1
    assert {value for _, value in first["done/a level"]} == {25.0, 50.0, 75.0, 100.0}
    assert 0 < first["seconds left/a level"][0][1] < 5
    assert not [tag for tag in second if tag.startswith(("done/", "seconds left/"))]


def test_no_file_without_a_folder_and_no_watcher_left_by_an_error(tmp_path):
    with pytest.raises(ZeroDivisionError), reported(tmp_path / "logs", on_ranks(1, lambda one: one)[0]):
        raise ZeroDivisionError
    assert not WATCHERS
    assert list(scalars(tmp_path / "logs" / "rank-0")) == ["ranks/memory, MiB"]
    with reported(None, on_ranks(1, lambda one: one)[0]):
        assert not WATCHERS
