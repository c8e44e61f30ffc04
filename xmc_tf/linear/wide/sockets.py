"""Connections between the threads of all ranks, over which the members of a team swap arrays.

They do not use the ranks' communicator: its calls must be made by all ranks in one order, but a team has a few threads,
and all others do other work. Each rank has one listener for all its threads; two threads connect when they first swap.
"""

import logging
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from xmc_tf.common.wire.format import register
from xmc_tf.ranks.channels.addresses import addresses_by_host
from xmc_tf.ranks.channels.handshake import HANDSHAKE_S, StrangerError, call, new_secret
from xmc_tf.ranks.channels.listener import Listener
from xmc_tf.ranks.communicator import Communicator

log = logging.getLogger(__name__)

_CHECK_S = 0.2  # seconds between two checks, while waiting, whether to stop
_PATIENCE_S = 60.0  # seconds to wait for a connection to a rank that does not answer
_PURPOSE = "wide"
_HEADER = struct.Struct("<qq")  # number of the swap between the two threads, and of the bytes that follow


class StoppedError(Exception):
    """Another thread of this rank has failed."""


@register
class Address(NamedTuple):
    """The listener of a thread's rank: address and port for the ranks of each host."""

    rank: int
    host: str
    endpoints: dict[str, tuple[str, int]]


class Switchboard:
    """The connections that other ranks have made to the threads of this one.

    Args:
        communicator: the ranks.
        threads: the number of threads of this rank.
        stopped: returns whether to stop waiting; called while waiting.
    """

    def __init__(self, communicator: Communicator, threads: int, stopped: Callable[[], bool]) -> None:
        self.host, self.stopped = communicator.host, stopped
        addresses = addresses_by_host(communicator)
        counts = communicator.allgather(threads)
        self.first = sum(counts[: communicator.rank])
        self._own = range(self.first, self.first + threads)
        self._all = sum(counts)
        self.secret = communicator.broadcast(new_secret())
        self._accepted: dict[tuple[int, int], socket.socket] = {}
        self._change, self._users = threading.Condition(), threads
        self._listener = Listener(addresses.values(), self.secret, _PURPOSE, self._welcome)
        ports = self._listener.ports
        endpoints = {host: (address, ports[address]) for host, address in addresses.items()}
        addresses_of_ranks = communicator.allgather(Address(communicator.rank, communicator.host, endpoints))
        self.addresses = [
            address for address, count in zip(addresses_of_ranks, counts, strict=True) for _ in range(count)
        ]

    def take(self, own: int, other: int) -> socket.socket:
        """Return the connection that another thread makes to an own thread; wait for it."""
        with self._change:
            while (own, other) not in self._accepted:
                if self.stopped():
                    raise StoppedError
                self._change.wait(_CHECK_S)
            return self._accepted.pop((own, other))

    def leave(self) -> None:
        """Stop listening when the last thread of this rank leaves."""
        with self._change:
            self._users -= 1
            last = self._users == 0
        if last:
            self._listener.close()
            for connection in self._accepted.values():
                connection.close()

    def _welcome(self, connection: socket.socket, caller: int, called: int) -> None:
        if called not in self._own or not called < caller < self._all:
            log.debug("refused a connection from thread %d to thread %d", caller, called)
            connection.close()
            return
        with self._change:
            before = self._accepted.pop((called, caller), None)
            if before is not None:  # the caller has timed out and connects again
                before.close()
            self._accepted[called, caller] = connection
            self._change.notify_all()


class Connections:
    """One thread's connections to others.

    Args:
        own: number of the thread among the threads of all ranks.
        switchboard: incoming connections of its rank.
    """

    def __init__(self, own: int, switchboard: Switchboard) -> None:
        self._own, self._switchboard = own, switchboard
        self._open: dict[int, socket.socket] = {}
        self._swaps: dict[int, int] = {}

    def swap(self, other: int, outgoing: np.ndarray, incoming: np.ndarray) -> None:
        """Send an array to a thread and receive one, both at the same time, so that two threads cannot block.

        Raises:
            ConnectionError: if the other thread's process has ended.
            StoppedError: if another thread of this rank has failed.
        """
        try:
            self._swap(other, outgoing, incoming)
        except OSError as error:  # a BrokenPipeError would be mistaken for one of standard output
            there = self._switchboard.addresses[other]
            raise ConnectionError(
                f"rank {there.rank} on {there.host}, with which this rank solves a problem, has ended ({error}); "
                "run the same command again to resume from the last step"
            ) from error

    def close(self) -> None:
        """Close all connections."""
        for connection in self._open.values():
            connection.close()
        self._switchboard.leave()

    def _swap(self, other: int, outgoing: np.ndarray, incoming: np.ndarray) -> None:
        connection = self._open.get(other) or self._connected(other)
        count = self._swaps[other] = self._swaps.get(other, 0) + 1
        header, expected = bytearray(_HEADER.size), _HEADER.pack(count, incoming.nbytes)
        sending = [memoryview(_HEADER.pack(count, outgoing.nbytes)), _bytes(outgoing)]
        filling = [memoryview(header), _bytes(incoming)]
        ready = select.poll()
        while sending or filling:
            ready.register(connection, (select.POLLOUT if sending else 0) | (select.POLLIN if filling else 0))
            for _, event in ready.poll(1000 * _CHECK_S):  # other events are errors, which the calls raise
                if sending and event & ~select.POLLIN:
                    _advance(sending, connection.send(sending[0]))
                if filling and event & ~select.POLLOUT:
                    if not (received := connection.recv_into(filling[0])) and len(filling[0]):
                        raise ConnectionResetError("it has closed the connection")
                    _advance(filling, received)
                    if len(filling) < 2 and header != expected:
                        raise ConnectionAbortedError(f"it speaks of {_HEADER.unpack(header)}, not of {count}")
            if self._switchboard.stopped():
                raise StoppedError

    def _connected(self, other: int) -> socket.socket:
        """Return a new connection; the thread with the larger number calls."""
        self._use(other, self._call(other) if self._own > other else self._switchboard.take(self._own, other))
        return self._open[other]

    def _call(self, other: int) -> socket.socket:
        board, end = self._switchboard, time.monotonic() + _PATIENCE_S
        address = board.addresses[other].endpoints[board.host]
        while True:
            try:
                return call(
                    address, board.secret, _PURPOSE, caller=self._own, called=other, patience_s=HANDSHAKE_S
                )  # fmt: skip
            except (StrangerError, ConnectionRefusedError):
                raise
            except OSError:
                if time.monotonic() >= end:
                    raise
            if board.stopped():
                raise StoppedError

    def _use(self, other: int, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(
            socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1
        )  # detect a host that fails without closing its connections
        for option, value in ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 6)):
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
        connection.setblocking(False)
        self._open[other] = connection


def connect_threads(communicator: Communicator, threads: int, stopped: Callable[[], bool]) -> list[Connections]:
    """Return the connections of each thread of this rank. Call it on all ranks.

    Args:
        communicator: the ranks.
        threads: number of threads of this rank.
        stopped: returns whether to stop waiting; called while a thread waits for another.
    """
    board = Switchboard(communicator, threads, stopped)
    return [Connections(board.first + i, board) for i in range(threads)]


def _bytes(array: np.ndarray) -> memoryview:
    assert array.flags.c_contiguous  # otherwise, data would be received into a copy
    return array.reshape(-1).view(np.uint8).data


def _advance(views: list[memoryview], count: int) -> None:
    """Remove bytes from the front, and views that are empty then."""
    views[0] = views[0][count:]
    while views and not len(views[0]):
        del views[0]
