"""The pairs of hosts that are measured, and the table of their speeds."""

from itertools import combinations

import pytest

from xmc_tf.check.links import Link, as_table, measure_links, rounds, slow_links
from xmc_tf.ranks.choosing import choose_communicator


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
