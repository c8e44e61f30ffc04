"""Messages on an authenticated connection: dictionaries of plain values, encoded with msgpack. They are trusted."""

import socket
import time
from functools import partial
from typing import Any

import msgpack

_AS_SENT = {"unicode_errors": "surrogatepass"}  # environment variables may have surrogates
new_unpacker = partial(msgpack.Unpacker, **_AS_SENT)  # yields the messages of the bytes that it is fed


def frame(content: dict[str, Any]) -> bytes:
    data: bytes = msgpack.packb(content, **_AS_SENT)
    return data


def receive(connection: socket.socket, patience_s: float) -> dict[str, Any]:
    """Return the next message, which must be complete within ``patience_s`` seconds, before the next one is sent."""
    unpacker, end = new_unpacker(), time.monotonic() + patience_s
    while (left := end - time.monotonic()) > 0:
        connection.settimeout(left)
        if not (data := connection.recv(1 << 16)):
            raise ConnectionResetError("it closed the connection")
        unpacker.feed(data)
        for message in unpacker:
            return message
    raise TimeoutError("timed out")
