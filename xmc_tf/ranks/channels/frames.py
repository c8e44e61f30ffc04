"""Messages on an authenticated connection: dictionaries of plain values, encoded with msgpack and limited in length."""

import socket
import time
from typing import Any

import msgpack

# A line of a rank's output has at most 64 KiB, each byte of which may become three.
MOST_BYTES = 256 << 10


class FrameError(ValueError):
    """A message that is invalid or too long."""


def frame(content: dict[str, Any]) -> bytes:
    data: bytes = msgpack.packb(content, unicode_errors="surrogatepass")  # environment variables may have surrogates
    if len(data) > MOST_BYTES:
        raise FrameError(f"a message of {len(data):,} bytes; at most {MOST_BYTES:,} are allowed")
    return data


class Unpacker:
    """A decoder that extracts messages from received bytes, which may arrive in pieces of any size."""

    def __init__(self) -> None:
        self._unpacker = msgpack.Unpacker(max_buffer_size=2 * MOST_BYTES, unicode_errors="surrogatepass")

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """Return the messages that these bytes complete. After an error, the connection is unusable."""
        try:
            self._unpacker.feed(data)
            found = list(self._unpacker)
        except (ValueError, msgpack.UnpackException, RecursionError) as error:
            raise FrameError(f"{type(error).__name__}: {error}") from None
        if not all(type(message) is dict for message in found):
            raise FrameError("a value that is not a message")
        return found


def receive(connection: socket.socket, patience_s: float) -> dict[str, Any]:
    """Return the next message, which must be complete within ``patience_s`` seconds. A second message is an error."""
    unpacker, end = Unpacker(), time.monotonic() + patience_s
    while True:
        if (left := end - time.monotonic()) <= 0:
            raise TimeoutError("timed out")
        connection.settimeout(left)
        if not (data := connection.recv(1 << 16)):
            raise ConnectionResetError("it closed the connection")
        if messages := unpacker.feed(data):
            if len(messages) > 1:
                raise FrameError("more than one message")
            return messages[0]


def text_of(message: dict[str, Any], name: str) -> str:
    return _field(message, name, str)


def number_of(message: dict[str, Any], name: str) -> int:
    return _field(message, name, int)


def _field(message: dict[str, Any], name: str, kind: type) -> Any:
    if type(value := message.get(name)) is not kind:
        raise FrameError(f"message without {name!r} of type {kind.__name__}")
    return value
