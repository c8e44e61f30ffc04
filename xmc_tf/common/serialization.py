"""The format in which ranks send objects: msgpack with extensions. It describes values and cannot run code.

It supports None, bool, int (64 bits), float, str, bytes, list, tuple, dict, set, frozenset, range, ``Path``, registered
classes, sparse matrices (CSR and CSC), and NumPy's arrays, types and scalars (texts become str). A message consists of
the length of a msgpack value, the value, and the memory of its arrays in order. Each side copies this memory once. What
is received is not checked: the ranks of a run trust each other.
"""

import dataclasses
import struct
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path, PosixPath
from typing import Any, TypeVar

import msgpack
import numpy as np

_LENGTH = struct.Struct("<Q")
_ARRAY, _OBJECT = 0, 1  # msgpack's codes of the two extensions
_OPTIONS = {"unicode_errors": "surrogatepass"}
Registered = TypeVar("Registered", bound=type)


def register(cls: Registered) -> Registered:
    """Make instances of a dataclass or named tuple sendable. The receiving rank calls the class to create them."""
    names = getattr(cls, "_fields", None) or [field.name for field in dataclasses.fields(cls)]
    _send_as(cls, lambda value: [getattr(value, name) for name in names],
             lambda *values: cls(**dict(zip(names, values, strict=True))))  # fmt: skip
    return cls


def pack(value: Any) -> bytes:
    arrays: list[memoryview] = []

    def extension(value: Any) -> Any:
        if isinstance(value, np.str_ | np.bytes_):
            return value.item()
        code = _OBJECT
        if type(value) is np.ndarray:
            code, backwards = _ARRAY, value.flags.f_contiguous and not value.flags.c_contiguous
            plain = value.T if backwards else value
            content = [_name_of(value.dtype), bool(backwards), list(plain.shape)]
            arrays.append(np.ascontiguousarray(plain).reshape(-1).view(np.uint8).data)
        elif isinstance(value, np.generic):
            content = ["scalar", [np.asarray(value)]]
        elif isinstance(value, np.dtype):
            content = ["dtype", [_name_of(value)]]
        elif type(value) in _PARTS:
            content = [_full_name(type(value)), _PARTS[type(value)](value)]
        elif (name := type(value).__name__) in _SPARSE and type(value).__module__.startswith("scipy.sparse."):
            content = [name, [list(value.shape), value.data, value.indices, value.indptr]]
        else:
            raise TypeError(
                f"a value of type {_full_name(type(value))} cannot be sent to other ranks: send numbers, text, arrays, "
                "lists, tuples or dicts of them, or register its dataclass with serialization.register"
            )
        return msgpack.ExtType(code, packed(content))

    def packed(value: Any) -> bytes:
        return msgpack.packb(value, default=extension, strict_types=True, buf_size=1024, **_OPTIONS)

    body = packed(value)
    return b"".join([_LENGTH.pack(len(body)), body, *arrays])


def unpack(data: bytes | memoryview) -> Any:
    """Decode a message made by ``pack``. Arrays are writable copies."""
    data = memoryview(data).cast("B")
    place = _LENGTH.size + _LENGTH.unpack_from(data)[0]  # of the next array

    def value_of(code: int, packed: bytes) -> Any:
        nonlocal place
        content = unpacked(packed)
        if code == _OBJECT:
            return _MAKERS[content[0]](*content[1])
        name, backwards, shape = content
        array = np.empty(shape, _dtype(name))
        array.reshape(-1).view(np.uint8).data[:] = data[place : place + array.nbytes]
        place += array.nbytes
        return array.T if backwards else array

    def unpacked(packed: bytes | memoryview) -> Any:
        return msgpack.unpackb(packed, ext_hook=value_of, strict_map_key=False, **_OPTIONS)

    return unpacked(data[_LENGTH.size : place])


def _name_of(dtype: np.dtype) -> str:
    if dtype.hasobject or dtype.itemsize == 0 or (dtype.kind == "V" and dtype.name != "bfloat16"):
        raise TypeError(f"an array of type {dtype} cannot be sent: use numbers, dates, or text of fixed length")
    return dtype.name if dtype.kind == "V" else dtype.str


def _dtype(name: str) -> np.dtype:
    if name == "bfloat16":
        import ml_dtypes  # comes with TensorFlow, as such arrays do

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def _sparse(name: str, shape: Sequence[int], *arrays: np.ndarray) -> Any:
    import scipy.sparse

    matrix = getattr(scipy.sparse, name)(tuple(shape), dtype=arrays[0].dtype)
    matrix.data, matrix.indices, matrix.indptr = arrays  # the constructor would change the type of the indices
    return matrix


def _full_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


_PARTS: dict[type, Callable[[Any], Any]] = {}
_SPARSE = ("csr_matrix", "csc_matrix")
_MAKERS: dict[str, Callable[..., Any]] = {"scalar": lambda array: array[()], "dtype": _dtype}
_MAKERS |= {name: partial(_sparse, name) for name in _SPARSE}


def _send_as(cls: type, parts: Callable[[Any], Any], make: Callable[..., Any]) -> None:
    _PARTS[cls], _MAKERS[_full_name(cls)] = parts, make


_send_as(tuple, list, lambda *items: items)
_send_as(set, list, lambda *items: set(items))
_send_as(frozenset, list, lambda *items: frozenset(items))
_send_as(range, lambda value: [value.start, value.stop, value.step], range)
_send_as(PosixPath, lambda value: [str(value)], Path)
