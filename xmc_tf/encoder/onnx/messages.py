"""ONNX files: the few messages of ``onnx.proto`` that a graph needs, in the wire format of Protocol Buffers."""

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

# The package `onnx` would write the same, but servers would have to install it.

# Numbers of data types in TensorProto.DataType.
FLOAT, UINT8, INT8, INT64, BOOL = 1, 2, 3, 7, 9
TYPES = {"float32": FLOAT, "uint8": UINT8, "int8": INT8, "int64": INT64, "bool": BOOL}
_IR_VERSION, _OPSET = 9, 20  # of ONNX 1.15, which ONNX Runtime reads since 1.17
MICROSOFT = "com.microsoft"  # the domain of ONNX Runtime's own operations


def model(
    nodes: Iterable[bytes], constants: Iterable[bytes], inputs: Iterable[bytes], outputs: Iterable[bytes]
) -> bytes:
    """Return the file of a graph from its messages: nodes in the order of computation, tensors, and values."""
    parts = [_field(1, one) for one in nodes]
    parts += [_field(2, b"encoder"), *(_field(5, one) for one in constants)]
    parts += [*(_field(11, one) for one in inputs), *(_field(12, one) for one in outputs)]
    opsets = [_field(2, _OPSET), _field(1, MICROSOFT.encode()) + _field(2, 1)]
    return b"".join((
        _field(1, _IR_VERSION), _field(2, b"xmc_tf"), _field(7, b"".join(parts)), *(_field(8, one) for one in opsets)
    ))  # fmt: skip


def node(kind: str, inputs: Sequence[str], outputs: Sequence[str], attributes: Mapping[str, Any], domain: str) -> bytes:
    """Return a node; an empty input is left out."""
    return b"".join((
        *(_field(1, name.encode()) for name in inputs),
        *(_field(2, name.encode()) for name in outputs),
        _field(3, outputs[0].encode()),
        _field(4, kind.encode()),
        *(_field(5, _attribute(name, value)) for name, value in attributes.items()),
        _field(7, domain.encode()),
    ))  # fmt: skip


def tensor(name: str, array: np.ndarray) -> bytes:
    """Return a constant."""
    dims = b"".join(_field(1, size) for size in array.shape)
    content = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
    return dims + _field(2, TYPES[array.dtype.name]) + _field(8, name.encode()) + _field(9, content.tobytes())


def outer_tensor(name: str, array: np.ndarray, file: str, offset: int) -> bytes:
    """Return a constant whose content is in another file of the same folder."""
    dims = b"".join(_field(1, size) for size in array.shape)
    place = {"location": file, "offset": str(offset), "length": str(array.nbytes)}
    entries = (_field(13, _field(1, key.encode()) + _field(2, text.encode())) for key, text in place.items())
    return b"".join((dims, _field(2, TYPES[array.dtype.name]), _field(8, name.encode()), *entries, _field(14, 1)))


def value(name: str, kind: int, sizes: Sequence[str | int]) -> bytes:
    """Return an input or output; sizes that vary have names."""
    dims = [_field(1, _field(1, one) if isinstance(one, int) else _field(2, one.encode())) for one in sizes]
    return _field(1, name.encode()) + _field(2, _field(1, _field(1, kind) + _field(2, b"".join(dims))))


def _attribute(name: str, given: Any) -> bytes:
    if isinstance(given, float):
        content, kind = b"\x15" + struct.pack("<f", given), 1
    elif isinstance(given, int):
        content, kind = _field(3, given), 2
    elif isinstance(given, str):
        content, kind = _field(4, given.encode()), 3
    else:
        content, kind = b"".join(_field(8, one) for one in given), 7
    return _field(1, name.encode()) + content + _field(20, kind)


def _field(number: int, content: int | bytes) -> bytes:
    """Encode a field: an integer, or bytes with their length."""
    if isinstance(content, int):
        return _varint(number << 3) + _varint(content & 0xFFFF_FFFF_FFFF_FFFF)
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
