"""Connections between the threads of all ranks, by which those who solve a problem together swap arrays.

Sockets and not the ranks' communicator: its calls are made by all ranks in one order, and a team is made of a few
threads, while all others go on with something else. Each thread listens at a port of its own; two connect when they
first swap.
"""

import os
import secrets
import select
import socket
import struct
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from xmc_tf.collective.communicator import Communicator

_LOOK_S = 0.2  # how often one that waits asks whether it still has to
_PATIENCE_S = 10.0  # for a connection to be made
_SECRET_BYTES = 16
_HELLO = struct.Struct(f"<{_SECRET_BYTES}sq")  # the secret, and which thread it is
_HEADER = struct.Struct("<qq")  # which swap between the two it is, and how many bytes follow


class StoppedError(Exception):
    """Another thread of this rank has failed."""


class Address(NamedTuple):
    """Where a thread listens."""

    rank: int
    host: str
    names: tuple[str, ...]
    port: int


class Connections:
    """One thread's connections to others.

    Args:
        own: its number among the threads of all ranks.
        server: where it listens.
        everybody: where all listen.
        secret: known to the ranks only.
        stopped: asked while waiting.
    """

    def __init__(
        self, own: int, server: socket.socket, everybody: list[Address], secret: bytes, stopped: Callable[[], bool]
    ) -> None:
        self._own, self._server, self._everybody, self._secret, self._stopped = own, server, everybody, secret, stopped
        self._open: dict[int, socket.socket] = {}
        self._swaps: dict[int, int] = {}
        server.settimeout(_LOOK_S)

    def swap(self, other: int, outgoing: np.ndarray, incoming: np.ndarray) -> None:
        """Sends an array to a thread and fills one with what that one sends, both at once: nobody waits in vain.

        Raises:
            ConnectionError: the other's process has ended.
            StoppedError: there is no use in waiting.
        """
        try:
            self._swap(other, outgoing, incoming)
        except OSError as error:  # not as it is: a BrokenPipeError is taken for that of a reader of our output
            there = self._everybody[other]
            raise ConnectionError(
                f"rank {there.rank} on {there.host}, with which this rank solves a problem, is gone ({error}); "
                "the same command, started again, goes on from the last step"
            ) from error

    def close(self) -> None:
        """Ends them all."""
        for connection in [self._server, *self._open.values()]:
            connection.close()

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
            if self._stopped():
                raise StoppedError

    def _connected(self, other: int) -> socket.socket:
        """A new connection: the one with the larger number calls, which may be long before the other answers."""
        if self._own > other:
            connection = _call(self._everybody[other])
            connection.sendall(_HELLO.pack(self._secret, self._own))
            self._use(other, connection)
        while other not in self._open:
            if self._stopped():
                raise StoppedError
            try:
                connection, _ = self._server.accept()
            except TimeoutError:
                continue
            caller = self._caller(connection)
            if caller is None:
                connection.close()
            else:
                self._use(caller, connection)
        return self._open[other]

    def _use(self, other: int, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a host that vanishes says nothing
        for option, value in ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 6)):
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
        connection.setblocking(False)
        self._open[other] = connection

    def _caller(self, connection: socket.socket) -> int | None:
        """Who it is; None: not one of us."""
        connection.settimeout(_PATIENCE_S)
        hello = b""
        try:
            while len(hello) < _HELLO.size:
                if not (more := connection.recv(_HELLO.size - len(hello))):
                    return None
                hello += more
        except OSError:
            return None
        secret, caller = _HELLO.unpack(hello)
        return caller if secrets.compare_digest(secret, self._secret) else None


def connect_threads(communicator: Communicator, threads: int, stopped: Callable[[], bool]) -> list[Connections]:
    """The connections of each thread of this rank; all ranks call it together.

    Args:
        communicator: the ranks.
        threads: how many this rank has.
        stopped: asked while a thread waits for another.
    """
    one_host = len(set(communicator.allgather(communicator.host))) == 1
    servers = [socket.create_server(("127.0.0.1" if one_host else "", 0), backlog=128) for _ in range(threads)]
    names = ("127.0.0.1",) if one_host else _own_names()
    secret = communicator.broadcast(secrets.token_bytes(_SECRET_BYTES))
    mine = [Address(communicator.rank, communicator.host, names, one.getsockname()[1]) for one in servers]
    everybodys = communicator.allgather(mine)
    first = sum(map(len, everybodys[: communicator.rank]))
    everybody = [address for of_rank in everybodys for address in of_rank]
    return [Connections(first + i, server, everybody, secret, stopped) for i, server in enumerate(servers)]


def _call(there: Address) -> socket.socket:
    problem: OSError = ConnectionError("it has no name")
    for name in there.names:
        try:
            return socket.create_connection((name, there.port), timeout=_PATIENCE_S)
        except OSError as error:
            problem = error
    raise problem


def _bytes(array: np.ndarray) -> memoryview:
    assert array.flags.c_contiguous  # what is received would go into a copy
    return array.reshape(-1).view(np.uint8).data


def _advance(views: list[memoryview], count: int) -> None:
    """Takes bytes off the front, and views that have none left."""
    views[0] = views[0][count:]
    while views and not len(views[0]):
        del views[0]


def _own_names() -> tuple[str, ...]:
    """By what other hosts may reach this one, the best first."""
    given = [os.environ.get("HOROVOD_HOSTNAME", ""), socket.getfqdn(), socket.gethostname()]
    return tuple(dict.fromkeys(name for name in given if name))
