"""Encoding of the messages of ``onnx.proto`` that an ONNX file needs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from xmc_tf.common.protobuf import field

# Numbers of data types in TensorProto.DataType.
FLOAT, UINT8, INT8, INT64, BOOL = 1, 2, 3, 7, 9
TYPES = {"float32": FLOAT, "uint8": UINT8, "int8": INT8, "int64": INT64, "bool": BOOL}
_IR_VERSION, _OPSET = 9, 20  # of ONNX 1.15, which ONNX Runtime reads since 1.17
MICROSOFT = "com.microsoft"  # the domain of ONNX Runtime's own operations


def model(
    nodes: Iterable[bytes], constants: Iterable[bytes], inputs: Iterable[bytes], outputs: Iterable[bytes]
) -> bytes:
    """Return the content of an ONNX file from its encoded messages; nodes must be in the order of computation."""
    parts = [_all(1, nodes), field(2, "encoder"), _all(5, constants), _all(11, inputs), _all(12, outputs)]
    opsets = [field(2, _OPSET), field(1, MICROSOFT) + field(2, 1)]
    return field(1, _IR_VERSION) + field(2, "xmc_tf") + field(7, b"".join(parts)) + _all(8, opsets)


def node(kind: str, inputs: Sequence[str], outputs: Sequence[str], attributes: Mapping[str, Any], domain: str) -> bytes:
    """Encode a node; an empty name stands for an omitted input."""
    head = _all(1, inputs) + _all(2, outputs) + field(3, outputs[0]) + field(4, kind)
    return head + _all(5, (_attribute(name, given) for name, given in attributes.items())) + field(7, domain)


def tensor(name: str, array: np.ndarray) -> bytes:
    content = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
    return _all(1, array.shape) + field(2, TYPES[array.dtype.name]) + field(8, name) + field(9, content.tobytes())


def outer_tensor(name: str, array: np.ndarray, file: str, offset: int) -> bytes:
    """Encode a constant whose content is in another file of the same folder."""
    place = {"location": file, "offset": str(offset), "length": str(array.nbytes)}
    entries = _all(13, (field(1, key) + field(2, text) for key, text in place.items()))
    return _all(1, array.shape) + field(2, TYPES[array.dtype.name]) + field(8, name) + entries + field(14, 1)


def value(name: str, kind: int, sizes: Sequence[str | int]) -> bytes:
    """Encode an input or output; a string in ``sizes`` names a dimension of variable size."""
    dims = _all(1, (field(1 if isinstance(one, int) else 2, one) for one in sizes))
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, dims)))


def _attribute(name: str, given: Any) -> bytes:
    if isinstance(given, float):
        content, kind = field(2, given), 1
    elif isinstance(given, int):
        content, kind = field(3, given), 2
    elif isinstance(given, str):
        content, kind = field(4, given), 3
    else:
        content, kind = _all(8, given), 7
    return field(1, name) + content + field(20, kind)


def _all(number: int, contents: Iterable[Any]) -> bytes:
    """Encode a repeated field."""
    return b"".join(field(number, one) for one in contents)
