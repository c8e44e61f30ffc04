"""The lowest layer of the wire format: bytes and text with their lengths, and a reader that checks the end."""

import struct
from collections.abc import Callable
from typing import Any, TypeAlias

Emit: TypeAlias = Callable[[bytes | memoryview], None]

COUNT = struct.Struct("<Q")


class WireFormatError(ValueError):
    """A value that cannot be sent, or bytes that are not a value."""


def emit_bytes(data: bytes, emit: Emit) -> None:
    """Emit bytes, preceded by their number."""
    emit(COUNT.pack(len(data)))
    emit(data)


def emit_text(text: str, emit: Emit) -> None:
    """Emit a text, which may have surrogates, as names of files that are not UTF-8 do."""
    emit_bytes(text.encode("utf-8", "surrogatepass"), emit)


class Reader:
    """A reader of data from front to back.

    Args:
        data: the data.
    """

    def __init__(self, data: memoryview) -> None:
        self._data, self._at, self._size = data, 0, len(data)

    @property
    def left(self) -> int:
        """The number of bytes that have not been read."""
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
        """Return the next numbers, in a fixed layout."""
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
        """Return the bytes that ``emit_bytes`` emitted."""
        return bytes(self.take(self.count()))

    def text(self) -> str:
        """Return the text that ``emit_text`` emitted."""
        try:
            return self.bytes().decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise WireFormatError(f"text that is not UTF-8: {error}") from None
