"""The check of ranks: places, shared folders, links between hosts, and collectives on a single rank."""

import re
from itertools import combinations

import pytest

from tests.refusals import refused
from xmc_tf.check import __main__ as command
from xmc_tf.check import exchanges, places
from xmc_tf.check.links import Link, as_table, measure_links, rounds, slow_links
from xmc_tf.check.places import Place, place_of_rank, ranks_without, warnings
from xmc_tf.common.errors import InputError
from xmc_tf.ranks.choosing import choose_communicator
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
    refused("No such file", ranks_without, Solo(), tmp_path / "nowhere")


def test_tables_of_a_single_process_are_printed(capsys):
    command.main(["--megabytes", "0.5"])
    shown = capsys.readouterr().out
    assert "1 rank: a single process" in shown
    assert re.search(r"^rank +host +local +pid +threads +cores$", shown, re.MULTILINE)
    assert re.search(r"^all-to-all +right +[\d.]+ ms +[\d.]+ ms +[\d,]+ MB/s$", shown, re.MULTILINE)
    assert shown.rstrip().endswith("all checks passed")


def test_invalid_options_are_refused(tmp_path):
    for flag in ("--timeout", "--megabytes"):
        refused("above 0", command.main, [flag, "0"])
    with pytest.raises(InputError, match=r"rank 0 cannot write to the shared folder\n.*\n.*all ranks can write to"):
        command.main(["--megabytes", "0.5", "--shared-workdir", str(tmp_path / "none")])


@pytest.mark.parametrize("count", [0, 1, 2, 7, 8])
def test_each_pair_meets_once_and_nobody_is_in_two_pairs_of_a_round(count):
    found = rounds(count)
    assert sorted(pair for pairs in found for pair in pairs) == list(combinations(range(count), 2))
    for pairs in found:
        members = [one for pair in pairs for one in pair]
        assert len(members) == len(set(members))
    assert len(found) <= count


def test_a_link_much_slower_than_good_ones_is_slow():
    both = [Link(("a", "b"), 0.1, 90), Link(("a", "c"), 0.1, 1000), Link(("b", "c"), 0.1, 100)]
    assert [link.hosts for link in slow_links(both)] == [("a", "b"), ("b", "c")]
    links = [Link(("a", "b"), 0.1, 900), Link(("a", "c"), 0.1, 100), Link(("b", "c"), 0.1, 1000)]
    assert [link.hosts for link in slow_links(links)] == [("a", "c")]
    assert slow_links(links[:1]) == slow_links([]) == []
    table = as_table(links)
    assert table.splitlines()[0].split() == ["MB/s", "between", "a", "b", "c"]
    assert table.splitlines()[2].split() == ["a", "–", "900", "100"]
    assert table.endswith("slowest: a – c: 100 MB/s, 0.10 ms (median 900 MB/s)")


def test_many_hosts_have_a_list_instead_of_a_matrix():
    names = [f"host{number:02}" for number in range(40)]
    links = [Link(pair, 0.1, 1000 + number) for number, pair in enumerate(combinations(names, 2))]
    lines = as_table(links).splitlines()
    assert lines[0] == "the slowest of 780 links between hosts:"
    assert len(lines) == 18


def test_one_host_has_no_links():
    assert measure_links(choose_communicator(), 1000) == []
