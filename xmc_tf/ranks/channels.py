"""Authenticated TCP connections between the processes of a run. The launcher and the stall watch use them.

Each side proves that it knows the run's secret, by ``multiprocessing.connection``, before the other reads a message.
Afterwards, messages are neither encrypted nor signed: see docs/explanation/security.md.
"""

import contextlib
import fcntl
import ipaddress
import logging
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any

import msgpack

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
ANYWHERE = "192.0.2.1"  # reserved for documentation: belongs to no host, but has a route
HANDSHAKE_S = 5.0  # in which a listener gets each message of a handshake
_REST_S = 0.1  # when this process has no file descriptors left
_SIOCGIFADDR, _SIOCGIFNETMASK = 0x8915, 0x891B  # Linux: the address of an interface, and its network
_AS_SENT = {"unicode_errors": "surrogatepass"}  # environment variables may have surrogates


class StrangerError(ConnectionError):
    """The other side does not know this run's secret."""


class Channel:
    """A connection for messages: dictionaries of plain values, encoded with msgpack. They are trusted."""

    def __init__(self, made: socket.socket) -> None:
        made.settimeout(None)
        self.socket, self._connection = made, Connection(os.dup(made.fileno()))
        self._sending = threading.Lock()

    def __enter__(self) -> "Channel":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self, **message: Any) -> None:
        with self._sending:
            self._connection.send_bytes(msgpack.packb(message, **_AS_SENT))

    def receive(self, patience_s: float | None = None) -> dict[str, Any]:
        """Return the next message. Wait for it, at most ``patience_s`` seconds if that is given."""
        if not self._connection.poll(patience_s):
            raise TimeoutError("timed out")
        try:
            message: dict[str, Any] = msgpack.unpackb(self._connection.recv_bytes(), **_AS_SENT)
        except EOFError:
            raise ConnectionResetError("it closed the connection") from None
        return message

    def receive_now(self) -> dict[str, Any]:
        """Return the next message if there is one, else an empty one."""
        return self.receive() if self._connection.poll() else {}

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes up a thread that reads
        self.socket.close()
        self._connection.close()

    def prove(self, secret: bytes, steps: Iterable[Callable[[Connection, bytes], None]], patience_s: float) -> None:
        self._limit_reads(patience_s)
        try:
            for step in steps:
                step(self._connection, secret)
        except (AssertionError, AuthenticationError):
            raise StrangerError("it does not know the secret of this run") from None
        except EOFError:
            raise ConnectionResetError("it closed the connection") from None
        except BlockingIOError:
            raise TimeoutError("timed out") from None
        self._limit_reads(0)

    def _limit_reads(self, seconds: float) -> None:
        limit = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)


def connect(address: tuple[str, int], secret: bytes, patience_s: float = 2 * HANDSHAKE_S) -> Channel:
    """Connect to a ``Listener``. Each of its answers must arrive within ``patience_s`` seconds."""
    channel = Channel(socket.create_connection(address, timeout=patience_s))
    try:
        channel.prove(secret, (answer_challenge, deliver_challenge), patience_s)
    except BaseException:
        channel.close()
        raise
    return channel


class Listener:
    """A listener for callers that know the secret. ``welcome`` gets each of them in a thread of its own."""

    def __init__(self, address: str, secret: bytes, welcome: Callable[[Channel], None], *, port: int = 0) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._server = socket.create_server((address, port), family=family, backlog=1024)
        self.address: tuple[str, int] = address, self._server.getsockname()[1]
        self._secret, self._welcome = secret, welcome
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._accept, name="xmc_tf listener", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening. Connections that have been accepted stay open."""
        self._closed.set()
        with contextlib.suppress(OSError):  # closed before
            self._server.shutdown(socket.SHUT_RDWR)  # wakes up the thread
        self._thread.join()

    def _accept(self) -> None:
        with self._server:
            while not self._closed.is_set():
                try:
                    made, address = self._server.accept()
                except OSError:  # closed, or no file descriptors left
                    time.sleep(_REST_S)
                    continue
                threading.Thread(target=self._meet, args=(made, address[0]), daemon=True).start()

    def _meet(self, made: socket.socket, address: str) -> None:
        try:
            with Channel(made) as channel:
                channel.prove(self._secret, (deliver_challenge, answer_challenge), HANDSHAKE_S)
                self._welcome(channel)
        except Exception as error:  # noqa: BLE001 - a failed connection must not end the listener
            log.debug("dropped a connection from %s: %s", address, error)


def interfaces() -> dict[str, tuple[str, str]]:
    """Return the name and network of each interface by IPv4 address: ``{"127.0.0.1": ("lo", "127.0.0.0/8")}``."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            with contextlib.suppress(OSError):  # the interface has no address
                address, mask = (
                    socket.inet_ntoa(fcntl.ioctl(probe, question, request)[20:24])
                    for question in (_SIOCGIFADDR, _SIOCGIFNETMASK)
                )
                found[address] = (name, str(ipaddress.ip_network(f"{address}/{mask}", strict=False)))
    return found


def address_towards(hosts: Iterable[str]) -> str:
    """Return this host's address on the route to the first of these hosts that has one, else the loopback."""
    for host in hosts:
        with contextlib.suppress(OSError):
            found = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)
            for family, kind, protocol, _, address in sorted(found, key=lambda one: one[0] != socket.AF_INET):
                with socket.socket(family, kind, protocol) as probe, contextlib.suppress(OSError):
                    probe.connect(address)  # sends nothing
                    return str(probe.getsockname()[0])
    return LOOPBACK
