"""The lowest part of the wire format: counted bytes and text, and a reader that never goes beyond its end."""

import struct
from collections.abc import Callable
from typing import Any, TypeAlias

Emit: TypeAlias = Callable[[bytes | memoryview], None]

COUNT = struct.Struct("<Q")


class WireFormatError(ValueError):
    """A value that cannot be sent, or bytes that are not a value."""


def emit_bytes(data: bytes, emit: Emit) -> None:
    """Emit bytes with their number in front."""
    emit(COUNT.pack(len(data)))
    emit(data)


def emit_text(text: str, emit: Emit) -> None:
    """Emit a text; names of files that are not UTF-8 have surrogates."""
    emit_bytes(text.encode("utf-8", "surrogatepass"), emit)


class Reader:
    """Takes bytes from the front of some data.

    Args:
        data: all of them.
    """

    def __init__(self, data: memoryview) -> None:
        self._data, self._at, self._size = data, 0, len(data)

    @property
    def left(self) -> int:
        """Number of bytes that have not been taken yet."""
        return self._size - self._at

    def take(self, count: int) -> memoryview:
        """Return the next bytes, without a copy.

        Raises:
            WireFormatError: there are fewer.
        """
        begin = self._advance(count)
        return self._data[begin : begin + count]

    def tag(self) -> int:
        """Return the next byte."""
        return self._data[self._advance(1)]

    def numbers(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Return the next numbers, in a layout of fixed size."""
        return layout.unpack_from(self._data, self._advance(layout.size))

    def count(self) -> int:
        """Return the next count."""
        return self.numbers(COUNT)[0]

    def _advance(self, count: int) -> int:
        begin = self._at
        if count > self._size - begin:
            raise WireFormatError(f"{count:,} bytes should follow, and {self.left:,} are left")
        self._at = begin + count
        return begin

    def bytes(self) -> bytes:
        """Return bytes that ``emit_bytes`` has emitted."""
        return bytes(self.take(self.count()))

    def text(self) -> str:
        """Return a text that ``emit_text`` has emitted."""
        try:
            return self.bytes().decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise WireFormatError(f"text that is not UTF-8: {error}") from None
