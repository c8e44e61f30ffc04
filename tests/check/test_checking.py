"""Tests of the check of ranks: stages, places, shared folders, and collectives on a single rank."""

import os
import re
import time

import pytest

from xmc_tf.check import __main__ as command
from xmc_tf.check import exchanges, places
from xmc_tf.check.places import Place, place_of_rank, ranges, warnings
from xmc_tf.check.shared_folder import ranks_without
from xmc_tf.check.status_files import StatusFiles, run_folder
from xmc_tf.common.errors import InputError
from xmc_tf.ranks.choosing import rank_and_size
from xmc_tf.ranks.solo import Solo


def status_files(folder, size, stages):
    """Return the status files of ranks that have entered the given numbers of stages."""
    made = []
    for rank, count in stages.items():
        status = StatusFiles(folder, rank, size, "here")
        for number in range(count):
            status.enter(f"stage {number}")
        status.write_heartbeat("running")
        made.append(status)
    return made


def test_only_ranks_behind_are_named(tmp_path):
    all_of_them = status_files(tmp_path, 4, {0: 3, 1: 2, 2: 3})
    behind = all_of_them[0].behind()
    assert len(behind) == 2
    assert behind[0] == f"rank 1 (pid {os.getpid()} on here) was last heard of in 'stage 1'"
    assert behind[1].startswith("rank 3 has not reported")
    assert str(tmp_path) in behind[1]


def test_stopped_ended_and_silent_ranks_are_distinguished(tmp_path):
    first, second, third, fourth = status_files(tmp_path, 4, dict.fromkeys(range(4), 1))
    second.write_heartbeat("stopped")
    third.write_heartbeat("ended")
    past = time.time() - 100
    os.utime(tmp_path / "3.life.json", (past, past))
    here = f"(pid {os.getpid()} on here)"
    assert first.behind() == [
        f"rank 1 {here} is stopped, in 'stage 0'",
        f"rank 2 {here} has ended, in 'stage 0'",
        f"rank 3 {here} has been silent for 100 s, in 'stage 0'",
    ]
    assert fourth.rank == 3


def test_one_rank_reports_for_all(tmp_path):
    made = status_files(tmp_path, 4, {0: 1, 1: 2, 2: 2})
    assert [status.should_report() for status in made] == [False, True, False]
    made[1].clear()
    assert [status.should_report() for status in made] == [False, False, False]


def test_the_last_rank_removes_the_folder(tmp_path):
    folder = tmp_path / "run"
    first, second = status_files(folder, 2, {0: 1, 1: 1})
    first.leave()
    assert folder.exists()
    second.leave()
    assert not folder.exists()


def test_files_of_an_older_run_are_ignored(tmp_path):
    (old,) = status_files(tmp_path, 2, {1: 5})
    past = time.time() - 10_000
    for path in tmp_path.iterdir():
        os.utime(path, (past, past))
    (new,) = status_files(tmp_path, 2, {0: 1})
    assert new.entry(1) is None
    assert new.should_report()
    # A rank that starts again has not reported yet.
    assert StatusFiles(tmp_path, 1, 2, "here").entry(1) is None
    assert old.rank == 1


def test_ranks_of_a_run_share_a_folder(tmp_path):
    one = run_folder({"PMIX_NAMESPACE": "17", "OMPI_COMM_WORLD_RANK": "0"}, tmp_path)
    assert one == run_folder({"PMIX_NAMESPACE": "17", "OMPI_COMM_WORLD_RANK": "1"}, tmp_path)
    assert one != run_folder({"PMIX_NAMESPACE": "18"}, tmp_path)
    assert one.parent == tmp_path


def place(rank, host="a", cores=(0, 1), threads=2, **versions):
    return Place(rank, rank, host, 100 + rank, tuple(cores), threads, {"python": "3.11.7"} | versions)


def test_warnings_name_different_versions_and_too_many_threads():
    assert warnings([place(0), place(1, "b")]) == []
    assert warnings([place(0, cores=[0], threads=1), place(1, cores=[1], threads=1)]) == []
    (crowded,) = warnings([place(0), place(1)])
    assert "a: 2 ranks want 4 threads on 2 cores" in crowded
    (different,) = warnings([place(0, numpy="1"), place(1, "b", numpy="2")])
    assert "numpy is 1 on rank 0 and 2 on rank 1" in different
    assert "xmc_tf" in place_of_rank(Solo()).versions
    assert "3.11.7" in places.as_table([place(0)])


@pytest.mark.parametrize(("numbers", "text"), [([], ""), ([3], "3"), ([0, 1, 2, 5, 7, 8], "0-2,5,7-8")])
def test_ranges(numbers, text):
    assert ranges(numbers) == text


def test_collectives_of_a_single_rank_are_right_and_errors_are_detected():
    said = []
    for name in exchanges.COLLECTIVES:
        timing = exchanges.measure(Solo(), name, 100_000, said.append)
        assert timing.right
        assert timing.wrong_ranks == []
        trial = exchanges.COLLECTIVES[name](Solo(), 1000)
        answer = trial.call()
        rows = answer[0] if isinstance(answer, tuple) else answer
        rows[-1] += 1
        assert not trial.is_right(answer)
    assert said[0] == "broadcast of 4,096 bytes, 1 of 5"
    assert len(said) == 2 * 5 * len(exchanges.COLLECTIVES)


def test_a_single_rank_shares_any_folder_and_leaves_no_files(tmp_path):
    assert ranks_without(Solo(), tmp_path) == []
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match="No such file"):
        ranks_without(Solo(), tmp_path / "nowhere")


def test_rank_and_size_come_from_the_launcher():
    assert rank_and_size({}) == (0, 1)
    assert rank_and_size({"HOROVOD_RANK": "2", "HOROVOD_SIZE": "3"}) == (2, 3)
    assert rank_and_size({"PMI_RANK": "1", "PMI_SIZE": "4"}) == (1, 4)


@pytest.fixture
def without_watchdog(monkeypatch):
    """Stay in this process; the watchdog is tested over ranks."""
    monkeypatch.setattr(command, "start_watchdog", lambda status, timeout: None)


@pytest.mark.usefixtures("without_watchdog")
def test_tables_of_a_single_process_are_printed(capsys, tmp_path):
    command.main(["--megabytes", "0.5", "--rendezvous", str(tmp_path)])
    shown = capsys.readouterr().out
    assert "1 rank: a single process" in shown
    assert re.search(r"^rank +host +local +pid +threads +cores$", shown, re.MULTILINE)
    assert re.search(r"^all-to-all +right +[\d.]+ ms +[\d.]+ ms +[\d,]+ MB/s$", shown, re.MULTILINE)
    assert shown.rstrip().endswith("all checks passed")


@pytest.mark.usefixtures("without_watchdog")
def test_invalid_options_are_refused(tmp_path):
    for flag in ("--timeout", "--megabytes"):
        with pytest.raises(InputError, match="numbers above 0"):
            command.main([flag, "0"])
    with pytest.raises(InputError, match="rank 0 cannot write to the shared folder"):
        command.main(["--megabytes", "0.5", "--rendezvous", str(tmp_path), "--shared-workdir", str(tmp_path / "none")])
