"""Sums and gathered tables of a team: the same bits for any number of members, with threads and connections."""

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.collective.threads import on_ranks, results_of
from xmc_tf.linear.wide.ranks import RankTeam
from xmc_tf.linear.wide.sockets import StoppedError, connect_threads
from xmc_tf.linear.wide.team import Alone
from xmc_tf.linear.wide.threads import _Meeting, _Member
from xmc_tf.ranks.channels.handshake import call, new_secret


def by_threads(parts, members, course):
    """Return the results of every member of a team of threads."""
    meeting = _Meeting(members)
    with ThreadPoolExecutor(members) as pool:
        return list(pool.map(lambda number: course(_Member(meeting, parts, number)), range(members)))


def by_connections(parts, members, course, folder, ranks=2):
    """Return the results of threads of two ranks; the members are the last threads, of each rank in turn."""

    def work(communicator):
        mine = -(-members // ranks)
        connections = connect_threads(communicator, mine, lambda: False)
        threads = list(range(ranks * mine))[::-1][:members]

        def member(thread):
            at = communicator.rank * mine + thread
            if at in threads:
                team = RankTeam(parts, threads, threads.index(at), connections[thread], folder, [])
                return team.number, course(team)
            return None

        with ThreadPoolExecutor(mine) as pool:
            found = list(pool.map(member, range(mine)))
        communicator.barrier()
        for one in connections:
            one.close()
        return [one for one in found if one is not None]

    of_ranks = results_of(on_ranks(ranks, work))
    return [result for _, result in sorted((one for found in of_ranks for one in found), key=lambda one: one[0])]


def tree(tables):
    """Return the sum by its definition: the sum of the even parts plus that of the odd parts, recursively."""
    return tables[0] if len(tables) == 1 else tree(tables[::2]) + tree(tables[1::2])


def in_order(tables):
    total = tables[0].copy()
    for one in tables[1:]:
        total = total + one
    return total


def course_of(parts, rows, lanes, seed):
    """Add tables and small sums and gather a table; return a member's results."""
    rng = np.random.default_rng(seed)
    tables = (rng.standard_normal((parts, rows, lanes)) * 10 ** rng.uniform(-6, 6, (parts, 1, 1))).astype(np.float32)
    small = rng.standard_normal((parts, 3)) * 10 ** rng.uniform(-6, 6, (parts, 1))
    blocks = rng.standard_normal((parts, 2, 5)) * 10 ** rng.uniform(-6, 6, (parts, 1, 1))

    def course(team):
        first, last = team.bounds(rows)[team.number : team.number + 2]
        own, whole = np.zeros((last - first, lanes + 1), np.float32), np.full((rows, lanes), np.nan, np.float32)
        team.add_tables(lambda part: tables[part].copy(), own)
        whole[first:last] = own[:, :lanes]
        team.gather(whole)
        share = range(team.number * parts // team.members, (team.number + 1) * parts // team.members)
        return (
            whole, team.add_of_parts([small[part] for part in team.own_parts]),
            team.add_of_blocks([blocks[block] for block in share]), np.abs(own[:, lanes:]).sum(),
        )  # fmt: skip

    return course, (tree(tables), in_order(small), in_order(blocks), 0)


powers = st.integers(0, 4).map(lambda power: 1 << power)


@given(powers, powers, st.integers(0, 40), st.integers(1, 3), st.integers(0, 2**30))
@settings(deadline=None, max_examples=60)
def test_sums_have_the_same_bits_for_any_number_of_threads(parts, members, rows, lanes, seed):
    course, expected = course_of(parts, rows, lanes, seed)
    for result in by_threads(parts, min(members, parts), course):
        for found, wanted in zip(result, expected, strict=True):
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("parts", "members"), [(1, 1), (4, 2), (4, 4), (8, 8)])
@pytest.mark.parametrize("rows", [3, 37, 60_001])
def test_connections_give_the_bits_of_threads(parts, members, rows, tmp_path):
    """The longest tables are larger than the buffers of a connection."""
    course, expected = course_of(parts, rows, 16, rows)
    for result in by_connections(parts, members, course, tmp_path):
        for found, wanted in zip(result, expected, strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_a_team_of_one_cannot_swap():
    course, expected = course_of(8, 20, 2, 0)
    for found, wanted in zip(course(Alone(8)), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_the_error_about_a_lost_rank_names_it():
    def work(communicator):
        (connection,) = connect_threads(communicator, 1, lambda: False)
        array = np.zeros(3_000_000, np.float32)
        connection.swap(1 - communicator.rank, array[:2], array[2:4])
        if communicator.rank == 1:
            connection.close()
            return
        try:
            connection.swap(1, array, array.copy())
        finally:
            connection.close()

    left, gone = on_ranks(2, work)
    assert gone is None
    assert type(left) is ConnectionError  # a BrokenPipeError would pass for that of a reader of our output
    assert "rank 1 on host1, with which this rank solves a problem, has ended" in str(left)


@pytest.mark.parametrize("has_called", [True, False])
def test_waiting_ends_when_another_thread_has_failed(has_called):
    stop = threading.Event()

    def work(communicator):
        (connection,) = connect_threads(communicator, 1, stop.is_set)
        array, other = np.zeros(4, np.float32), 1 - communicator.rank
        if has_called:
            connection.swap(other, array[:2], array[2:])
        if communicator.rank == 0:
            threading.Timer(0.3, stop.set).start()
            with pytest.raises(StoppedError):
                connection.swap(other, array[:2], array[2:])
        communicator.barrier()
        connection.close()

    begun = time.monotonic()
    results_of(on_ranks(2, work))
    assert time.monotonic() - begun < 10


def test_half_open_connections_do_not_delay_a_team():
    """Earlier versions waited 10 s for each silent connection."""

    def work(communicator):
        (connection,) = connect_threads(communicator, 1, lambda: False)
        address = connection._switchboard.addresses[0].endpoints[communicator.host]
        mine, theirs = np.full(2, communicator.rank, np.float32), np.zeros(2, np.float32)
        with ExitStack() as held:
            if communicator.rank == 1:
                strangers = [held.enter_context(socket.create_connection(address)) for _ in range(3)]
                strangers[1].sendall(b"[[[[")
                strangers[2].sendall(bytes(16) + (1).to_bytes(8, "little"))  # what passed for a greeting before
            communicator.barrier()
            connection.swap(1 - communicator.rank, mine, theirs)
        communicator.barrier()
        connection.close()
        return theirs.tolist()

    begun = time.monotonic()
    assert results_of(on_ranks(2, work)) == [[1, 1], [0, 0]]
    assert time.monotonic() - begun < 20  # before, 30 s


def test_connections_of_strangers_are_refused():
    """Connections with another secret, another purpose or invalid thread numbers are refused."""
    problems = []

    def work(communicator):
        (connection,) = connect_threads(communicator, 1, lambda: False)
        board = connection._switchboard
        mine, theirs = np.full(2, communicator.rank, np.float32), np.zeros(2, np.float32)
        if communicator.rank == 1:
            address = board.addresses[0].endpoints[communicator.host]
            for secret, purpose in ((new_secret(), "wide"), (board.secret, "stalls")):
                with pytest.raises(ConnectionResetError) as error:
                    call(address, secret, purpose, caller=1, called=0, patience_s=0.2)
                problems.append(error)
            for caller, called in ((0, 0), (2, 0), (1, 1), (1, 7), (-1, 0)):
                with call(address, board.secret, "wide", caller=caller, called=called) as refused:
                    assert refused.recv(1) == b""
        communicator.barrier()
        connection.swap(1 - communicator.rank, mine, theirs)
        communicator.barrier()
        connection.close()
        return theirs.tolist()

    assert results_of(on_ranks(2, work)) == [[1, 1], [0, 0]]
    assert len(problems) == 2


def test_members_at_different_swaps_raise_an_error():
    def work(communicator):
        (connection,) = connect_threads(communicator, 1, lambda: False)
        size = 4 if communicator.rank else 5
        try:
            connection.swap(1 - communicator.rank, np.zeros(size, np.float32), np.zeros(size, np.float32))
        finally:
            connection.close()

    for error in on_ranks(2, work):
        assert isinstance(error, ConnectionError)
