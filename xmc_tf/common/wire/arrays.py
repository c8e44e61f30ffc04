"""Numpy arrays, scalars and types, and sparse matrices, in the wire format."""

import math
import re
from typing import Any

import numpy as np

from xmc_tf.common.wire.byte_stream import COUNT, Emit, Reader, WireFormatError, emit_bytes, emit_text

_MOST_DIMENSIONS = 32
_DTYPE = re.compile(r"[<>|=]?(?:[biufcSU][0-9]{1,10}|[mM]8(?:\[[0-9]{0,6}[a-zA-Z]{1,2}\])?)")
_LARGEST_CHARACTER = 0x10FFFF


def emit_dtype(dtype: np.dtype, emit: Emit) -> None:
    """Emit the type of an array."""
    if dtype.name == "bfloat16":  # numpy's name for it would mean any two bytes
        emit_text("bfloat16", emit)
    elif not _DTYPE.fullmatch(dtype.str) or dtype.itemsize == 0:
        raise WireFormatError(f"an array of type {dtype} cannot be sent: numbers, dates, and text of fixed length can")
    else:
        emit_text(dtype.str, emit)


def read_dtype(reader: Reader) -> np.dtype:
    """Return the type of an array."""
    name = reader.text()
    if name == "bfloat16":
        import ml_dtypes  # comes with TensorFlow, as such arrays do

        return np.dtype(ml_dtypes.bfloat16)
    try:
        dtype = np.dtype(name) if _DTYPE.fullmatch(name) else None
    except (TypeError, ValueError, OverflowError):
        dtype = None
    if dtype is None or dtype.itemsize == 0:
        raise WireFormatError(f"no type of an array: {name[:100]!r}")
    return dtype


def emit_array(array: np.ndarray, emit: Emit) -> None:
    """Emit an array, without a copy if its memory has no gaps; its memory order (C or Fortran) is kept."""
    backwards = array.flags.f_contiguous and not array.flags.c_contiguous
    plain = np.ascontiguousarray(array.T if backwards else array)
    emit_dtype(array.dtype, emit)
    emit(b"F" if backwards else b"C")
    emit(COUNT.pack(array.ndim))
    for length in array.shape[::-1] if backwards else array.shape:
        emit(COUNT.pack(length))
    emit(plain.reshape(-1).view(np.uint8).data)


def read_array(reader: Reader) -> np.ndarray:
    """Return an array in new memory."""
    dtype, order, dimensions = read_dtype(reader), bytes(reader.take(1)), reader.count()
    if order not in (b"C", b"F") or dimensions > _MOST_DIMENSIONS:
        raise WireFormatError(f"an array of {dimensions:,} dimensions in order {order!r}")
    shape = tuple(reader.count() for _ in range(dimensions))
    if math.prod(length or 1 for length in shape) * dtype.itemsize >= 2**62:
        raise WireFormatError(f"an array of shape {shape}")
    data = reader.take(math.prod(shape) * dtype.itemsize)
    array = np.empty(len(data), np.uint8)
    array.data[:] = data
    array = _checked(array.view(dtype)).reshape(shape)
    return array.T if order == b"F" else array


def emit_scalar(value: np.generic, emit: Emit) -> None:
    """Emit a numpy scalar."""
    if isinstance(value, np.str_):
        emit(b"U")
        emit_text(str(value), emit)
    elif isinstance(value, np.bytes_):
        emit(b"S")
        emit_bytes(bytes(value), emit)
    else:
        emit(b"N")
        emit_dtype(value.dtype, emit)
        emit(value.tobytes())


def read_scalar(reader: Reader) -> np.generic:
    """Return a numpy scalar."""
    kind = bytes(reader.take(1))
    if kind == b"U":
        return np.str_(reader.text())
    if kind == b"S":
        return np.bytes_(reader.bytes())
    if kind != b"N":
        raise WireFormatError(f"no kind of scalar: {kind!r}")
    dtype = read_dtype(reader)
    return _checked(np.frombuffer(bytes(reader.take(dtype.itemsize)), dtype))[0]


def emit_sparse(matrix: Any, emit: Emit) -> None:
    """Emit a CSR or CSC matrix."""
    for length in matrix.shape:
        emit(COUNT.pack(length))
    for array in (matrix.data, matrix.indices, matrix.indptr):
        emit_array(array, emit)


def read_sparse(reader: Reader, by_rows: bool) -> Any:
    """Return a CSR or CSC matrix; its indices are checked, because compiled code relies on them."""
    from scipy.sparse import csc_matrix, csr_matrix

    shape = reader.count(), reader.count()
    data, indices, indptr = (read_array(reader) for _ in range(3))
    kinds = [array.dtype.kind for array in (data, indices, indptr)]
    if kinds[0] not in "biufc" or kinds[1:] != ["i", "i"] or any(one.ndim != 1 for one in (data, indices, indptr)):
        raise WireFormatError("a sparse matrix of other arrays than numbers and indices")
    if len(indptr) != shape[0 if by_rows else 1] + 1 or max(shape) >= 2**62:
        raise WireFormatError(f"a sparse matrix of shape {shape} with {len(indptr):,} offsets")
    try:
        matrix = (csr_matrix if by_rows else csc_matrix)(shape, dtype=data.dtype)
        matrix.data, matrix.indices, matrix.indptr = data, indices, indptr
        matrix.check_format(full_check=True)
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        raise WireFormatError(f"not a sparse matrix: {error}") from None
    return matrix


def _checked(array: np.ndarray) -> np.ndarray:
    """Return the array after checking that its bytes are valid for its type."""
    if array.dtype.kind == "b" and array.size and array.view(np.uint8).max() > 1:
        raise WireFormatError("a truth value that is neither 0 nor 1")
    if array.dtype.kind == "U" and array.size:
        codes = array.view(np.dtype(np.uint32).newbyteorder(array.dtype.byteorder))
        if codes.max() > _LARGEST_CHARACTER:
            raise WireFormatError("text with characters that do not exist")
    return array
