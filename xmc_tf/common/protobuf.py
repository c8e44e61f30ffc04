"""The wire format of Protocol Buffers, for a few messages whose packages would be needed for nothing else."""

import struct


def field(number: int, content: int | float | str | bytes) -> bytes:
    """Encode a field: an integer, a float of 32 bits, or text or bytes with their length."""
    if isinstance(content, float):
        return _varint(number << 3 | 5) + struct.pack("<f", content)
    if isinstance(content, int):
        return _varint(number << 3) + _varint(content & 0xFFFF_FFFF_FFFF_FFFF)
    content = content.encode() if isinstance(content, str) else content
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    """Encode a number in 7 bits per byte, the lowest first; the eighth bit is set in all bytes but the last."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))
