"""Connections between the threads of all ranks, by which those who solve a problem together swap arrays.

Sockets and not the ranks' communicator: its calls are made by all ranks in one order, and a team is made of a few
threads, while all others go on with something else. Each rank has one listener for all its threads; two threads connect
when they first swap.
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

_LOOK_S = 0.2  # how often one that waits asks whether it still has to
_PATIENCE_S = 60.0  # for a connection to a rank that is there, but does not answer
_PURPOSE = "wide"
_HEADER = struct.Struct("<qq")  # which swap between the two it is, and how many bytes follow


class StoppedError(Exception):
    """Another thread of this rank has failed."""


@register
class Address(NamedTuple):
    """Where a thread's rank listens: address and port for the ranks of each host."""

    rank: int
    host: str
    endpoints: dict[str, tuple[str, int]]


class Switchboard:
    """The connections that other ranks have made to the threads of this one.

    Args:
        communicator: the ranks.
        threads: the number of threads of this rank.
        stopped: returns whether there is no use in waiting; asked while waiting.
    """

    def __init__(self, communicator: Communicator, threads: int, stopped: Callable[[], bool]) -> None:
        self.host, self.stopped = communicator.host, stopped
        addresses = addresses_by_host(communicator)
        counts = communicator.allgather(threads)
        self.first = sum(counts[: communicator.rank])
        self._own = range(self.first, self.first + threads)
        self._all = sum(counts)
        self.secret = communicator.broadcast(new_secret())
        self._came: dict[tuple[int, int], socket.socket] = {}
        self._change, self._users = threading.Condition(), threads
        self._listener = Listener(addresses.values(), self.secret, _PURPOSE, self._welcome)
        ports = self._listener.ports
        endpoints = {host: (address, ports[address]) for host, address in addresses.items()}
        everybodys = communicator.allgather(Address(communicator.rank, communicator.host, endpoints))
        self.everybody = [address for address, count in zip(everybodys, counts, strict=True) for _ in range(count)]

    def take(self, own: int, other: int) -> socket.socket:
        """Return the connection that another thread has made to an own one; waits for it."""
        with self._change:
            while (own, other) not in self._came:
                if self.stopped():
                    raise StoppedError
                self._change.wait(_LOOK_S)
            return self._came.pop((own, other))

    def leave(self) -> None:
        """Stops listening when the last thread of this rank leaves."""
        with self._change:
            self._users -= 1
            last = self._users == 0
        if last:
            self._listener.close()
            for connection in self._came.values():
                connection.close()

    def _welcome(self, connection: socket.socket, caller: int, called: int) -> None:
        if called not in self._own or not called < caller < self._all:
            log.debug("refused a connection from thread %d to thread %d", caller, called)
            connection.close()
            return
        with self._change:
            before = self._came.pop((called, caller), None)
            if before is not None:  # the caller has lost patience and calls again
                before.close()
            self._came[called, caller] = connection
            self._change.notify_all()


class Connections:
    """One thread's connections to others.

    Args:
        own: its number among the threads of all ranks.
        switchboard: of its rank.
    """

    def __init__(self, own: int, switchboard: Switchboard) -> None:
        self._own, self._switchboard = own, switchboard
        self._open: dict[int, socket.socket] = {}
        self._swaps: dict[int, int] = {}

    def swap(self, other: int, outgoing: np.ndarray, incoming: np.ndarray) -> None:
        """Sends an array to a thread and fills one with what that one sends, both at once: nobody waits in vain.

        Raises:
            ConnectionError: the other's process has ended.
            StoppedError: there is no use in waiting.
        """
        try:
            self._swap(other, outgoing, incoming)
        except OSError as error:  # not as it is: a BrokenPipeError is taken for that of a reader of our output
            there = self._switchboard.everybody[other]
            raise ConnectionError(
                f"rank {there.rank} on {there.host}, with which this rank solves a problem, has ended ({error}); "
                "run the same command again to resume from the last step"
            ) from error

    def close(self) -> None:
        """Ends them all."""
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
            for _, event in ready.poll(1000 * _LOOK_S):  # what is neither in nor out is an error, which the call tells
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
        address = board.everybody[other].endpoints[board.host]
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
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a host that vanishes says nothing
        for option, value in ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 6)):
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
        connection.setblocking(False)
        self._open[other] = connection


def connect_threads(communicator: Communicator, threads: int, stopped: Callable[[], bool]) -> list[Connections]:
    """The connections of each thread of this rank; all ranks call it together.

    Args:
        communicator: the ranks.
        threads: how many this rank has.
        stopped: asked while a thread waits for another.
    """
    board = Switchboard(communicator, threads, stopped)
    return [Connections(board.first + i, board) for i in range(threads)]


def _bytes(array: np.ndarray) -> memoryview:
    assert array.flags.c_contiguous  # what is received would go into a copy
    return array.reshape(-1).view(np.uint8).data


def _advance(views: list[memoryview], count: int) -> None:
    """Takes bytes off the front, and views that have none left."""
    views[0] = views[0][count:]
    while views and not len(views[0]):
        del views[0]
