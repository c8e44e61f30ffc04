"""Attacks on a listener by a stranger on the network, with real sockets."""

import contextlib
import socket

GARBAGE = (
    b"[" * 60_000 + b"\n",
    b"5\n",
    b"\x00" * 24,
    b"\xff" * 100_000,
    b"GET / HTTP/1.1\r\n\r\n",
    b'{"kind": "hello", "token": "", "rank": 0}\n',
    b"\x80\x05cos\nsystem\n",
)


def connect(address):
    return socket.create_connection(address, timeout=120)


def send(connection, data):
    """Send data until the other side closes the connection."""
    with contextlib.suppress(OSError):
        connection.sendall(data)


@contextlib.contextmanager
def attack(address, half_open=5):
    """Send several kinds of garbage, and hold half-open connections within the block."""
    with contextlib.ExitStack() as held:
        for data in GARBAGE:
            send(held.enter_context(connect(address)), data)
        for number in range(half_open):
            send(held.enter_context(connect(address)), b"x" * number)
        yield
