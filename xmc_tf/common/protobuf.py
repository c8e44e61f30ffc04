"""A minimal encoder for Protocol Buffers. For a few messages, the full packages would be unnecessary dependencies."""

import struct


def field(number: int, content: int | float | str | bytes) -> bytes:
    """Encode one field: an integer, a 32-bit float, or a string or bytes with their length."""
    if isinstance(content, float):
        return _varint(number << 3 | 5) + struct.pack("<f", content)
    if isinstance(content, int):
        return _varint(number << 3) + _varint(content & 0xFFFF_FFFF_FFFF_FFFF)
    content = content.encode() if isinstance(content, str) else content
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    """Encode an integer in groups of 7 bits, lowest first. The eighth bit of a byte is set if another byte follows."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))
