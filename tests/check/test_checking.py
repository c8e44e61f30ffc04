"""Tests of the check of ranks: places, shared folders, and collectives on a single rank."""

import re

import pytest

from xmc_tf.check import __main__ as command
from xmc_tf.check import exchanges, places
from xmc_tf.check.places import Place, place_of_rank, ranks_without, warnings
from xmc_tf.common.errors import InputError
from xmc_tf.ranks.solo import Solo


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


def test_collectives_of_a_single_rank_are_right_and_errors_are_detected():
    for name in exchanges.COLLECTIVES:
        timing = exchanges.measure(Solo(), name, 100_000)
        assert timing.right
        assert timing.wrong_ranks == []
        trial = exchanges.COLLECTIVES[name](Solo(), 1000)
        answer = trial.call()
        rows = answer[0] if isinstance(answer, tuple) else answer
        rows[-1] += 1
        assert not trial.is_right(answer)


def test_a_single_rank_shares_any_folder_and_leaves_no_files(tmp_path):
    assert ranks_without(Solo(), tmp_path) == []
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match="No such file"):
        ranks_without(Solo(), tmp_path / "nowhere")


def test_tables_of_a_single_process_are_printed(capsys):
    command.main(["--megabytes", "0.5"])
    shown = capsys.readouterr().out
    assert "1 rank: a single process" in shown
    assert re.search(r"^rank +host +local +pid +threads +cores$", shown, re.MULTILINE)
    assert re.search(r"^all-to-all +right +[\d.]+ ms +[\d.]+ ms +[\d,]+ MB/s$", shown, re.MULTILINE)
    assert shown.rstrip().endswith("all checks passed")


def test_invalid_options_are_refused(tmp_path):
    for flag in ("--timeout", "--megabytes"):
        with pytest.raises(InputError, match="above 0"):
            command.main([flag, "0"])
    with pytest.raises(InputError, match="rank 0 cannot write to the shared folder"):
        command.main(["--megabytes", "0.5", "--shared-workdir", str(tmp_path / "none")])
