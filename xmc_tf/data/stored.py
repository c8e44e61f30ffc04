"""Matrices that a run has written for itself: mapped without being looked through, and set one below the other."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.lib import format as npy_format
from scipy.sparse import csc_matrix, csr_matrix

from xmc_tf.common.atomic import atomic_file
from xmc_tf.data.matrices import index_type
from xmc_tf.data.npz import read_npy, read_npz
from xmc_tf.data.npz_write import Stream, write_npz

_PIECE_ENTRIES = 1 << 22


def open_matrix(path: str | Path) -> csr_matrix | csc_matrix:
    """A sparse matrix that ``save_matrix`` or :func:`stack_rows` has written, mapped.

    Nothing is checked that takes reading all of it: for what a user gives there is ``load_matrix``.
    """
    arrays = read_npz(path, name="work file")
    kind = csc_matrix if arrays["format"].tobytes() == b"csc" else csr_matrix
    matrix = kind(tuple(int(side) for side in arrays["shape"]), dtype=np.float32)
    matrix.data, matrix.indices, matrix.indptr = arrays["data"], arrays["indices"], arrays["indptr"]
    if kind is csc_matrix:  # rows may be in order of score
        matrix.has_canonical_format = True
    return matrix


def stack_rows(paths: Sequence[Path], target: Path) -> None:
    """Sets matrices one below the other in one file, without holding more than a piece of them.

    Args:
        paths: CSR matrices (.npz), as ``save_matrix`` writes them, or dense ones (.npy).
        target: of the same kind; there whole or not at all.
    """
    with atomic_file(target) as file:
        if target.suffix == ".npy":
            _stack_dense(paths, file)
        else:
            _stack_sparse(paths, file)


def _stack_sparse(paths: Sequence[Path], file: Path) -> None:
    parts = [csr_matrix(open_matrix(path)) for path in paths]
    shape = (sum(part.shape[0] for part in parts), parts[0].shape[1])
    sizes = [int(part.indptr[-1]) for part in parts]
    index = index_type(shape, sum(sizes))
    before = np.cumsum([0, *sizes[:-1]])
    ends = [part.indptr[1:] + base for part, base in zip(parts, before, strict=True)]

    def pieces(name: str) -> Iterator[np.ndarray]:
        return (piece for part in parts for piece in _in_pieces(getattr(part, name), _PIECE_ENTRIES))

    write_npz(file, {
        "indices": Stream(np.dtype(index), sum(sizes), lambda: pieces("indices")),
        "indptr": np.concatenate([[0], *ends]).astype(index),
        "format": np.array(b"csr"),
        "shape": np.array(shape, dtype=np.int64),
        "data": Stream(np.dtype(np.float32), sum(sizes), lambda: pieces("data")),
    })  # fmt: skip


def _stack_dense(paths: Sequence[Path], file: Path) -> None:
    parts = [read_npy(path, name="work file") for path in paths]
    width = parts[0].shape[1]
    with file.open("wb") as out:
        head = {"descr": "<f4", "fortran_order": False, "shape": (sum(len(part) for part in parts), width)}
        npy_format.write_array_header_1_0(out, head)
        for part in parts:
            for piece in _in_pieces(part, max(1, _PIECE_ENTRIES // max(width, 1))):
                out.write(np.ascontiguousarray(piece, np.float32).data)


def _in_pieces(array: np.ndarray, length: int) -> Iterator[np.ndarray]:
    for start in range(0, len(array), length):
        yield array[start : start + length]
