"""The format in which ranks send objects: msgpack with extensions. It describes values and cannot run code.

It supports None, bool, int (64 bits), float, str, bytes, list, tuple, dict, set, frozenset, range, ``Path``, registered
classes, sparse matrices (CSR and CSC), and NumPy's arrays, types and scalars (texts become str). A message consists of
the length of a msgpack value, the value, and the memory of its arrays in order. Each side copies this memory once.
"""

import dataclasses
import math
import re
import struct
from collections.abc import Callable
from enum import IntEnum
from functools import partial
from pathlib import Path, PosixPath
from typing import Any, TypeVar

import msgpack
import numpy as np

__all__ = ["WireFormatError", "pack", "register", "unpack"]

MOST_LEVELS = 30  # of extensions within extensions; msgpack itself limits lists within lists
_LENGTH = struct.Struct("<Q")
_MOST_DIMENSIONS = 32
_DTYPE = re.compile(r"[<>|=]?(?:[biufcSU][0-9]{1,10}|[mM]8(?:\[[0-9]{0,6}[a-zA-Z]{1,2}\])?)")
_LARGEST_CHARACTER = 0x10FFFF
Registered = TypeVar("Registered", bound=type)


class WireFormatError(ValueError):
    """A value that cannot be sent, or received bytes that do not encode a value."""


class _Kind(IntEnum):
    """The msgpack codes of the extension types."""

    TUPLE, SET, FROZENSET, RANGE, PATH, DTYPE, ARRAY, SCALAR, CSR, CSC, RECORD = range(11)


@dataclasses.dataclass(frozen=True)
class _Record:
    name: str
    fields: tuple[str, ...]
    make: Callable[..., Any]


_BY_CLASS: dict[type, _Record] = {}
_BY_NAME: dict[str, _Record] = {}


def register(cls: Registered) -> Registered:
    """Make instances of a dataclass or named tuple sendable. The receiving rank calls the class to create them."""
    if dataclasses.is_dataclass(cls):
        fields = dataclasses.fields(cls)
        if not all(field.init for field in fields):
            raise TypeError(f"{cls.__name__}: a field that __init__ does not take cannot be sent")
        names = tuple(field.name for field in fields)
    elif issubclass(cls, tuple) and hasattr(cls, "_fields"):
        names = tuple(cls._fields)
    else:
        raise TypeError(f"{cls.__name__}: only dataclasses and named tuples can be registered")
    record = _Record(f"{cls.__module__}.{cls.__qualname__}", names, cls)
    _BY_CLASS[cls] = _BY_NAME[record.name] = record
    return cls


def pack(value: Any) -> bytes:
    arrays: list[memoryview] = []
    body = _packed(value, arrays, 0)
    return b"".join([_LENGTH.pack(len(body)), body, *arrays])


def unpack(data: bytes | memoryview) -> Any:
    """Decode a message made by ``pack``. Arrays are writable copies."""
    rest = _UnreadBytes(memoryview(data).cast("B"))
    body = rest.take(_LENGTH.unpack(rest.take(_LENGTH.size))[0])
    value = _unpacked(body, rest, 0)
    if rest.left:
        raise WireFormatError(f"{len(rest.left):,} bytes are left over after the value")
    return value


class _UnreadBytes:
    def __init__(self, data: memoryview) -> None:
        self.left = data

    def take(self, count: int) -> memoryview:
        """Return the next bytes without copying them."""
        if count > len(self.left):
            raise WireFormatError(f"{count:,} bytes should follow, but only {len(self.left):,} are left")
        taken, self.left = self.left[:count], self.left[count:]
        return taken


# Sending.


def _packed(value: Any, arrays: list[memoryview], level: int) -> bytes:
    if level > MOST_LEVELS:
        raise WireFormatError(f"a value that is nested more than {MOST_LEVELS} levels deep cannot be sent")
    extend = partial(_extension, arrays=arrays, level=level + 1)
    try:
        return msgpack.packb(value, default=extend, strict_types=True, unicode_errors="surrogatepass", buf_size=1024)
    except WireFormatError:
        raise
    except (ValueError, OverflowError, RecursionError) as error:
        raise WireFormatError(f"this value cannot be sent (it may be nested too deeply): {error}") from None


def _extension(value: Any, arrays: list[memoryview], level: int) -> Any:
    """Encode a value whose type msgpack does not support."""
    if isinstance(value, np.str_ | np.bytes_):
        return str(value) if isinstance(value, np.str_) else bytes(value)
    kind, content = _content(value, arrays)
    return msgpack.ExtType(kind, _packed(content, arrays, level))


_ITEMS: dict[type, _Kind] = {tuple: _Kind.TUPLE, set: _Kind.SET, frozenset: _Kind.FROZENSET}


def _content(value: Any, arrays: list[memoryview]) -> tuple[_Kind, Any]:
    kind = type(value)
    if kind in _ITEMS:
        return _ITEMS[kind], list(value)
    if (record := _BY_CLASS.get(kind)) is not None:
        return _Kind.RECORD, [record.name, [getattr(value, name) for name in record.fields]]
    if kind is np.ndarray:
        return _Kind.ARRAY, _array_content(value, arrays)
    if isinstance(value, np.generic):
        return _Kind.SCALAR, [_dtype_name(value.dtype), value.tobytes()]
    if isinstance(value, np.dtype):
        return _Kind.DTYPE, _dtype_name(value)
    if kind is range:
        return _Kind.RANGE, [value.start, value.stop, value.step]
    if kind is PosixPath:
        return _Kind.PATH, str(value)
    if kind.__module__.startswith("scipy.sparse.") and kind.__qualname__ in ("csr_matrix", "csc_matrix"):
        by_rows = kind.__qualname__ == "csr_matrix"
        return _Kind.CSR if by_rows else _Kind.CSC, [*value.shape, value.data, value.indices, value.indptr]
    raise WireFormatError(
        f"a value of type {kind.__module__}.{kind.__qualname__} cannot be sent to other ranks: send numbers, text, "
        "arrays, lists, tuples or dicts of them, or register its dataclass with serialization.register"
    )


def _array_content(array: np.ndarray, arrays: list[memoryview]) -> list[Any]:
    """Return an array's description, including its memory order (C or Fortran), and append its memory to ``arrays``."""
    backwards = array.flags.f_contiguous and not array.flags.c_contiguous
    plain = np.ascontiguousarray(array.T if backwards else array)
    name = _dtype_name(array.dtype)
    arrays.append(plain.reshape(-1).view(np.uint8).data)
    return [name, bool(backwards), list(array.shape[::-1] if backwards else array.shape)]


def _dtype_name(dtype: np.dtype) -> str:
    if dtype.name == "bfloat16":  # numpy's name for it would mean any two bytes
        return "bfloat16"
    if not _DTYPE.fullmatch(dtype.str) or dtype.itemsize == 0:
        raise WireFormatError(f"an array of type {dtype} cannot be sent: use numbers, dates, or text of fixed length")
    return dtype.str


# Receiving.


def _unpacked(data: bytes | memoryview, rest: _UnreadBytes, level: int) -> Any:
    if level > MOST_LEVELS:
        raise WireFormatError(f"a value is nested more than {MOST_LEVELS} levels deep")
    try:
        return msgpack.unpackb(
            data,
            ext_hook=partial(_value, rest=rest, level=level + 1),
            object_pairs_hook=partial(_unique, dict),
            strict_map_key=False,
            unicode_errors="surrogatepass",
        )
    except WireFormatError:
        raise
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise WireFormatError(f"the bytes are not a value: {error}") from None


def _value(kind: int, data: bytes, rest: _UnreadBytes, level: int) -> Any:
    """Decode an extension value, after checking that its parts have exactly the expected types."""
    if kind not in _MAKERS:
        raise WireFormatError(f"unknown kind of value: {kind}")
    types, make = _MAKERS[kind]
    content = _unpacked(data, rest, level)
    parts = content if len(types) > 1 and type(content) is list else [content]
    if len(parts) != len(types):
        raise WireFormatError(f"{len(parts)} parts where {len(types)} are expected")
    for part, expected in zip(parts, types, strict=True):
        if type(part) is not expected:
            raise WireFormatError(f"a value of type {type(part).__name__} where {expected.__name__} is expected")
    return make(*parts, rest=rest) if kind == _Kind.ARRAY else make(*parts)


def _unique(make: Callable[[Any], Any], values: list[Any]) -> Any:
    made = make(values)
    if len(made) != len(values):
        raise WireFormatError("a key or member is given twice")
    return made


def _dtype(name: str) -> np.dtype:
    if name == "bfloat16":
        import ml_dtypes  # comes with TensorFlow, as such arrays do

        return np.dtype(ml_dtypes.bfloat16)
    dtype = np.dtype(name) if _DTYPE.fullmatch(name) else None
    if dtype is None or dtype.itemsize == 0:
        raise WireFormatError(f"not an array type: {name[:100]!r}")
    return dtype


def _array(name: str, backwards: bool, shape: list[int], rest: _UnreadBytes) -> np.ndarray:
    dtype = _dtype(name)
    if len(shape) > _MOST_DIMENSIONS or not all(type(length) is int and length >= 0 for length in shape):
        raise WireFormatError(f"an array of {len(shape):,} dimensions: {shape[:9]}")
    if math.prod(length or 1 for length in shape) * dtype.itemsize >= 2**62:
        raise WireFormatError(f"an array of shape {shape}")
    data = rest.take(math.prod(shape) * dtype.itemsize)
    array = np.empty(len(data), np.uint8)
    array.data[:] = data
    array = _checked(array.view(dtype)).reshape(shape)
    return array.T if backwards else array


def _scalar(name: str, data: bytes) -> np.generic:
    dtype = _dtype(name)
    if len(data) != dtype.itemsize:
        raise WireFormatError(f"{len(data):,} bytes for a value of {dtype}")
    return _checked(np.frombuffer(data, dtype))[0]


def _sparse(rows: int, columns: int, *arrays: np.ndarray, by_rows: bool) -> Any:
    """Return a CSR or CSC matrix after checking its indices, because compiled code does not check them."""
    from scipy.sparse import csc_matrix, csr_matrix

    data, indices, indptr = arrays
    kinds = [array.dtype.kind for array in arrays]
    if kinds[0] not in "biufc" or kinds[1:] != ["i", "i"] or any(array.ndim != 1 for array in arrays):
        raise WireFormatError("a sparse matrix whose arrays are not numbers and indices")
    if len(indptr) != (rows if by_rows else columns) + 1 or min(rows, columns) < 0 or max(rows, columns) >= 2**62:
        raise WireFormatError(f"a sparse matrix of shape {(rows, columns)} with {len(indptr):,} offsets")
    try:
        matrix = (csr_matrix if by_rows else csc_matrix)((rows, columns), dtype=data.dtype)
        matrix.data, matrix.indices, matrix.indptr = data, indices, indptr
        matrix.check_format(full_check=True)
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        raise WireFormatError(f"not a sparse matrix: {error}") from None
    return matrix


def _record(name: str, values: list[Any]) -> Any:
    record = _BY_NAME.get(name)
    if record is None:
        raise WireFormatError(f"class {name[:200]!r} is not registered")
    if len(values) != len(record.fields):
        raise WireFormatError(f"{name}: {len(values)} values for {len(record.fields)} fields")
    try:
        return record.make(**dict(zip(record.fields, values, strict=True)))
    except Exception as error:
        raise WireFormatError(f"{name}: {error}") from error


def _checked(array: np.ndarray) -> np.ndarray:
    """Return the array after checking that its bytes are valid for its type."""
    if array.dtype.kind == "b" and array.size and array.view(np.uint8).max() > 1:
        raise WireFormatError("a truth value that is neither 0 nor 1")
    if array.dtype.kind == "U" and array.size:
        codes = array.view(np.dtype(np.uint32).newbyteorder(array.dtype.byteorder))
        if codes.max() > _LARGEST_CHARACTER:
            raise WireFormatError("text with characters that do not exist")
    return array


# By kind: the types of its parts, and the function that takes them.
_MAKERS: dict[int, tuple[tuple[type, ...], Callable[..., Any]]] = {
    _Kind.TUPLE: ((list,), tuple),
    _Kind.SET: ((list,), partial(_unique, set)),
    _Kind.FROZENSET: ((list,), partial(_unique, frozenset)),
    _Kind.RANGE: ((int, int, int), range),
    _Kind.PATH: ((str,), Path),
    _Kind.DTYPE: ((str,), _dtype),
    _Kind.ARRAY: ((str, bool, list), _array),
    _Kind.SCALAR: ((str, bytes), _scalar),
    _Kind.CSR: ((int, int, np.ndarray, np.ndarray, np.ndarray), partial(_sparse, by_rows=True)),
    _Kind.CSC: ((int, int, np.ndarray, np.ndarray, np.ndarray), partial(_sparse, by_rows=False)),
    _Kind.RECORD: ((str, list), _record),
}
