"""Messages on an authenticated connection: JSON objects in frames of limited length."""

import json
import socket
import struct
import time
from typing import Any

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.json_files import parse_json

_LENGTH = struct.Struct("<I")
# A line of a rank's output has at most 64 KiB; JSON may escape each of its bytes as six.
MOST_BYTES = 512 << 10


class FrameError(ValueError):
    """The received data are not a message."""


def frame(content: dict[str, Any]) -> bytes:
    """Return one message as bytes."""
    data = json.dumps(content, allow_nan=False).encode()
    if len(data) > MOST_BYTES:
        raise FrameError(f"a message of {len(data):,} bytes; at most {MOST_BYTES:,} are allowed")
    return _LENGTH.pack(len(data)) + data


class Unpacker:
    """A splitter of received bytes into messages; the bytes may arrive in pieces of any size."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """Return the messages that these bytes complete.

        Raises:
            FrameError: the bytes are not messages; the connection can no longer be used.
        """
        self._rest += data
        found, at = [], 0
        while len(self._rest) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._rest, at)
            if length > MOST_BYTES:
                raise FrameError(f"a message of {length:,} bytes; at most {MOST_BYTES:,} are allowed")
            if len(self._rest) - at - _LENGTH.size < length:
                break
            at += _LENGTH.size + length
            found.append(_parsed(bytes(self._rest[at - length : at])))
        del self._rest[:at]
        return found


def receive(connection: socket.socket, patience_s: float) -> dict[str, Any]:
    """Return the next message; more data after it is an error.

    Args:
        connection: an authenticated connection.
        patience_s: the time limit for the whole message.

    Raises:
        FrameError: the data are not a message.
        TimeoutError: the message was not complete in time.
        ConnectionError: the other side closed the connection.
    """
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
    """Return a text field of a message."""
    return _field(message, name, str)


def number_of(message: dict[str, Any], name: str) -> int:
    """Return a whole number of a message."""
    return _field(message, name, int)


def _field(message: dict[str, Any], name: str, kind: type) -> Any:
    value = message.get(name)
    if type(value) is not kind:
        raise FrameError(f"message without {name!r} of type {kind.__name__}")
    return value


def _parsed(data: bytes) -> dict[str, Any]:
    try:
        return parse_json(data, of="message", limit=MOST_BYTES, unique_keys=True)
    except InputError as error:
        raise FrameError(str(error)) from None
