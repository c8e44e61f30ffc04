"""The format in which ranks send objects, which can describe values but not run code.

Example:
    >>> unpack(pack({"step": 3, "loss": float("nan"), "rows": np.arange(4)}))
    {'step': 3, 'loss': nan, 'rows': array([0, 1, 2, 3])}

It supports None, bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset, range, ``Path``, numpy's
arrays, scalars and types, sparse matrices (CSR and CSC), and the dataclasses and named tuples that are registered where
they are defined:

    >>> @wire_format.register
    ... class Point(NamedTuple):
    ...     x: int
    ...     y: int

A value is a one-byte tag, followed by its content. Classes are looked up by name among those that are registered; no
name in the data is ever imported. Each length is compared with the remaining bytes before memory is allocated.
"""

import dataclasses
import struct
from collections.abc import Callable, Iterable
from pathlib import Path, PosixPath
from typing import Any, TypeVar

import numpy as np

from xmc_tf.common.wire import arrays as wire_arrays
from xmc_tf.common.wire.byte_stream import COUNT, Emit, Reader, WireFormatError, emit_bytes, emit_text

__all__ = ["WireFormatError", "pack", "register", "unpack"]

MOST_LEVELS = 100  # of values within values
MOST_INT_BYTES = 512
_INT = struct.Struct("<q")
_FLOAT = struct.Struct("<d")
_COMPLEX = struct.Struct("<dd")
_SAME_KIND = {int: "q", float: "d"}
_RANGE = struct.Struct("<qqq")
Registered = TypeVar("Registered", bound=type)


@dataclasses.dataclass(frozen=True)
class _Record:
    """The fields and the constructor of a registered class."""

    name: bytes
    fields: tuple[str, ...]
    make: Callable[..., Any]


_BY_CLASS: dict[type, _Record] = {}
_BY_NAME: dict[bytes, _Record] = {}


def register(cls: Registered) -> Registered:
    """Register a dataclass or named tuple, so that its instances can be sent to other ranks; a class decorator.

    Args:
        cls: the class. Its fields must be values that can be sent; a receiving rank calls the class with them.
    """
    if dataclasses.is_dataclass(cls):
        fields = dataclasses.fields(cls)
        if not all(field.init for field in fields):
            raise TypeError(f"{cls.__name__}: a field that __init__ does not take cannot be sent")
        names = tuple(field.name for field in fields)
    elif issubclass(cls, tuple) and hasattr(cls, "_fields"):
        names = tuple(cls._fields)
    else:
        raise TypeError(f"{cls.__name__}: only dataclasses and named tuples can be registered")
    record = _Record(f"{cls.__module__}.{cls.__qualname__}".encode(), names, cls)
    _BY_CLASS[cls] = _BY_NAME[record.name] = record
    return cls


def pack(value: Any) -> bytes:
    """Return a value as bytes.

    Raises:
        WireFormatError: a part of the value has a type that cannot be sent, or is nested too deeply.
    """
    parts: list[bytes | memoryview] = []
    _pack(value, parts.append, 0)
    return b"".join(parts)


def unpack(data: bytes | memoryview) -> Any:
    """Return the value of bytes that ``pack`` returned.

    Arrays are copies that can be written to.

    Raises:
        WireFormatError: the bytes are damaged, or describe a class that is not registered here.
    """
    reader = Reader(memoryview(data).cast("B"))
    value = _unpack(reader, 0)
    if reader.left:
        raise WireFormatError(f"{reader.left:,} bytes are left over behind the value")
    return value


def _pack(value: Any, emit: Emit, level: int) -> None:
    packer = _PACKERS.get(type(value))
    if packer is not None:
        packer(value, emit, level)
    elif isinstance(value, np.dtype):
        emit(b"y")
        wire_arrays.emit_dtype(value, emit)
    elif isinstance(value, np.generic):
        emit(b"c")
        wire_arrays.emit_scalar(value, emit)
    elif (tag := _sparse_tag(value)) is not None:
        emit(tag)
        wire_arrays.emit_sparse(value, emit)
    elif (record := _BY_CLASS.get(type(value))) is not None:
        emit(b"r")
        emit_bytes(record.name, emit)
        _pack_items([getattr(value, name) for name in record.fields], emit, level)
    else:
        kind = type(value)
        raise WireFormatError(
            f"a value of type {kind.__module__}.{kind.__qualname__} cannot be sent to other ranks: send numbers, text, "
            "arrays, lists, tuples or dicts of them, or register its dataclass with wire_format.register"
        )


def _sparse_tag(value: Any) -> bytes | None:
    """Return the tag of a sparse matrix, or None, without importing scipy."""
    kind = type(value)
    if not kind.__module__.startswith("scipy.sparse."):
        return None
    return {"csr_matrix": b"R", "csc_matrix": b"C"}.get(kind.__qualname__)


def _pack_int(value: int, emit: Emit, level: int) -> None:
    if -(2**63) <= value < 2**63:
        emit(b"i" + _INT.pack(value))
        return
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    if len(data) > MOST_INT_BYTES:
        raise WireFormatError(f"a whole number of {len(data):,} bytes; at most {MOST_INT_BYTES} can be sent")
    emit(b"I")
    emit_bytes(data, emit)


def _pack_text(value: str, emit: Emit, level: int) -> None:
    emit(b"s")
    emit_text(value, emit)


def _packer_of_items(tag: bytes) -> Callable[[Any, Emit, int], None]:
    def pack_items(value: Any, emit: Emit, level: int) -> None:
        emit(tag)
        _pack_items(value, emit, level)

    return pack_items


def _pack_items(values: Any, emit: Emit, level: int) -> None:
    if level == MOST_LEVELS:
        raise WireFormatError(f"a value with more than {MOST_LEVELS} levels of values within it cannot be sent")
    emit(COUNT.pack(len(values)))
    for code in _same_kind(values):
        try:
            emit(struct.pack(f"<c{len(values)}{code}", code.encode(), *values))
        except struct.error:  # whole numbers beyond 64 bits
            break
        return
    emit(b"*")
    for value in values:
        _pack(value, emit, level + 1)


def _same_kind(values: Any) -> str:
    """Return the struct code of a list of equal number types, which struct sends fast, or ""."""
    kinds = set(map(type, values))
    return _SAME_KIND.get(kinds.pop(), "") if len(kinds) == 1 else ""


def _pack_dict(value: dict, emit: Emit, level: int) -> None:
    emit(b"d")
    _pack_items(list(value), emit, level)
    _pack_items(list(value.values()), emit, level)


def _pack_bytes(value: bytes, emit: Emit, level: int) -> None:
    emit(b"b")
    emit_bytes(value, emit)


def _pack_range(value: range, emit: Emit, level: int) -> None:
    try:
        emit(b"g" + _RANGE.pack(value.start, value.stop, value.step))
    except struct.error:
        raise WireFormatError("a range beyond 64 bits cannot be sent") from None


def _pack_path(value: Path, emit: Emit, level: int) -> None:
    emit(b"p")
    emit_text(str(value), emit)


def _pack_array(value: np.ndarray, emit: Emit, level: int) -> None:
    emit(b"a")
    wire_arrays.emit_array(value, emit)


_PACKERS: dict[type, Callable[[Any, Emit, int], None]] = {
    type(None): lambda value, emit, level: emit(b"N"),
    bool: lambda value, emit, level: emit(b"T" if value else b"F"),
    int: _pack_int,
    float: lambda value, emit, level: emit(b"f" + _FLOAT.pack(value)),
    complex: lambda value, emit, level: emit(b"x" + _COMPLEX.pack(value.real, value.imag)),
    str: _pack_text,
    bytes: _pack_bytes,
    list: _packer_of_items(b"l"),
    tuple: _packer_of_items(b"t"),
    set: _packer_of_items(b"S"),
    frozenset: _packer_of_items(b"Z"),
    dict: _pack_dict,
    range: _pack_range,
    PosixPath: _pack_path,
    np.ndarray: _pack_array,
}


def _unpack(reader: Reader, level: int) -> Any:
    tag = reader.tag()
    unpacker = _UNPACKERS.get(tag)
    if unpacker is None:
        raise WireFormatError(f"no value begins with byte {tag}")
    return unpacker(reader, level)


def _unpack_items(reader: Reader, level: int) -> list[Any]:
    if level == MOST_LEVELS:
        raise WireFormatError(f"more than {MOST_LEVELS} levels of values within values")
    count, code = reader.count(), chr(reader.tag())
    if count > reader.left:  # each takes a byte or more
        raise WireFormatError(f"{count:,} values should follow, and {reader.left:,} bytes are left")
    if code in _SAME_KIND.values():
        return list(struct.unpack(f"<{count}{code}", reader.take(8 * count)))
    if code != "*":
        raise WireFormatError(f"no values begin with {code!r}")
    return [_unpack(reader, level + 1) for _ in range(count)]


def _unpack_whole(reader: Reader, level: int) -> int:
    data = reader.bytes()
    if len(data) > MOST_INT_BYTES:
        raise WireFormatError(f"a whole number of {len(data):,} bytes")
    return int.from_bytes(data, "little", signed=True)


def _unpack_set(make: Callable[[Iterable[Any]], Any]) -> Callable[[Reader, int], Any]:
    def unpack_set(reader: Reader, level: int) -> Any:
        values = _unpack_items(reader, level)
        return _unique(make, values, len(values))

    return unpack_set


def _unpack_dict(reader: Reader, level: int) -> dict:
    keys, values = _unpack_items(reader, level), _unpack_items(reader, level)
    if len(keys) != len(values):
        raise WireFormatError(f"{len(keys):,} keys and {len(values):,} values")
    return _unique(dict, zip(keys, values, strict=True), len(keys))


def _unique(make: Callable[[Iterable[Any]], Any], values: Iterable[Any], count: int) -> Any:
    try:
        made = make(values)
    except TypeError as error:
        raise WireFormatError(str(error)) from None
    if len(made) != count:
        raise WireFormatError("a key or member is given twice")
    return made


def _unpack_range(reader: Reader, level: int) -> range:
    start, stop, step = reader.numbers(_RANGE)
    if step == 0:
        raise WireFormatError("a range with step 0")
    return range(start, stop, step)


def _unpack_path(reader: Reader, level: int) -> Path:
    return Path(reader.text())


def _unpack_record(reader: Reader, level: int) -> Any:
    name = reader.bytes()
    record = _BY_NAME.get(name)
    if record is None:
        raise WireFormatError(f"class {name[:200].decode(errors='replace')!r} is not registered")
    values = _unpack_items(reader, level)
    if len(values) != len(record.fields):
        raise WireFormatError(f"{name.decode()}: {len(values)} values for {len(record.fields)} fields")
    try:
        return record.make(**dict(zip(record.fields, values, strict=True)))
    except Exception as error:
        raise WireFormatError(f"{name.decode()}: {error}") from error


_UNPACKERS: dict[int, Callable[[Reader, int], Any]] = {
    ord("N"): lambda reader, level: None,
    ord("T"): lambda reader, level: True,
    ord("F"): lambda reader, level: False,
    ord("i"): lambda reader, level: reader.numbers(_INT)[0],
    ord("I"): _unpack_whole,
    ord("f"): lambda reader, level: reader.numbers(_FLOAT)[0],
    ord("x"): lambda reader, level: complex(*reader.numbers(_COMPLEX)),
    ord("s"): lambda reader, level: reader.text(),
    ord("b"): lambda reader, level: reader.bytes(),
    ord("l"): _unpack_items,
    ord("t"): lambda reader, level: tuple(_unpack_items(reader, level)),
    ord("S"): _unpack_set(set),
    ord("Z"): _unpack_set(frozenset),
    ord("d"): _unpack_dict,
    ord("g"): _unpack_range,
    ord("p"): _unpack_path,
    ord("y"): lambda reader, level: wire_arrays.read_dtype(reader),
    ord("a"): lambda reader, level: wire_arrays.read_array(reader),
    ord("c"): lambda reader, level: wire_arrays.read_scalar(reader),
    ord("R"): lambda reader, level: wire_arrays.read_sparse(reader, by_rows=True),
    ord("C"): lambda reader, level: wire_arrays.read_sparse(reader, by_rows=False),
    ord("r"): _unpack_record,
}
