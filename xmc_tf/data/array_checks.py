"""Check the arrays of a matrix. They are read in pieces, so that a mapped matrix may exceed memory."""

from collections.abc import Callable, Iterator
from typing import NoReturn, Protocol, TypeVar

import numpy as np
from scipy.sparse import csc_matrix, csr_matrix

from xmc_tf.common.errors import InputError

Found = TypeVar("Found")
_PIECE = 1 << 20
# Scanning so few entries takes less time than sending the other processes the result.
FEW = 1 << 20


class Scan(Protocol):
    """A way to scan an array in parts, in this process or in several; see also ``xmc_tf.ranks.on_all_ranks``."""

    def map(self, function: Callable[[int, int], Found]) -> list[Found]:
        """Call ``function(part, parts)`` for each part. All processes get all results or the same error."""


class _Alone:
    def map(self, function: Callable[[int, int], Found]) -> list[Found]:
        return [function(0, 1)]


ALONE: Scan = _Alone()


def worth_sharing(scan: Scan, entries: int) -> Scan:
    """Return ``scan`` for a long array and ``ALONE`` for a short one."""
    return scan if entries > FEW else ALONE


def check_pointers(indptr: np.ndarray, nr_major: int, nr_entries: int, what: str) -> None:
    """Check that the pointers of a CSR or CSC matrix ascend from 0 to the number of entries."""
    if indptr.ndim != 1 or indptr.shape[0] != nr_major + 1:
        _broken(what, f"{nr_major + 1:,} pointers (indptr)", f"an array of shape {indptr.shape}")
    if indptr[0] != 0 or indptr[-1] != nr_entries:
        _broken(what, f"pointers (indptr) from 0 to {nr_entries:,}", f"from {indptr[0]} to {indptr[-1]}")
    for start, piece in _pieces(indptr, overlap=1):
        falls = np.flatnonzero(piece[1:] < piece[:-1])
        if falls.size:
            _broken(what, "pointers (indptr) that never decrease", f"a decrease after number {start + falls[0]:,}")


def check_indices(
    indptr: np.ndarray, indices: np.ndarray, nr_minor: int, what: str, line: str, scan: Scan = ALONE
) -> bool:
    """Check that all indices lie within the matrix; return whether each row or column is sorted without duplicates."""

    def look(part: int, parts: int) -> bool:
        canonical = True
        for start, piece in _pieces(indices, part, parts, overlap=1):
            if piece.min() < 0 or piece.max() >= nr_minor:
                first = int(np.flatnonzero((piece < 0) | (piece >= nr_minor))[0])
                at = _line_of(indptr, start + first)
                found = f"{piece[first]} in {line} {at:,} (counted from 0)"
                _broken(what, f"indices from 0 to {nr_minor - 1:,}", found)
            if canonical:
                # A new row must begin wherever an index is not larger than the one before.
                turns = start + 1 + np.flatnonzero(piece[1:] <= piece[:-1])
                canonical = bool(np.all(indptr[np.searchsorted(indptr, turns)] == turns))
        return canonical

    return all(worth_sharing(scan, indices.size).map(look))


def check_finite(matrix: csr_matrix | csc_matrix | np.ndarray, what: str, scan: Scan = ALONE) -> None:
    """Check that all values are finite; the error names the row and column of the first NaN or infinity."""
    values = matrix if isinstance(matrix, np.ndarray) else matrix.data
    length = max(1, _PIECE // max(1, values.shape[1])) if values.ndim == 2 else _PIECE

    def look(part: int, parts: int) -> None:
        for start, piece in _pieces(values, part, parts, length=length):
            wrong = ~np.isfinite(piece)
            if wrong.any():
                first, *rest = (int(axis[0]) for axis in np.nonzero(wrong))
                dense = isinstance(matrix, np.ndarray)
                row, column = (start + first, *rest) if dense else position_of(matrix, start + first)
                raise InputError(
                    f"{what}: row {row:,}, column {column:,} (counted from 0) is {piece[wrong][0]}",
                    expected="finite numbers that fit into 32 bits",
                    received=f"{int(wrong.sum()):,} such values among the {len(piece):,} "
                    f"{'rows' if dense else 'entries'} from {start:,} on",
                    fix="find their cause, then remove these entries or replace them with finite numbers",
                )

    worth_sharing(scan, values.size).map(look)


def position_of(matrix: csr_matrix | csc_matrix, entry: int) -> tuple[int, int]:
    """Return the row and the column of an entry."""
    line, other = _line_of(matrix.indptr, entry), int(matrix.indices[entry])
    return (line, other) if matrix.format == "csr" else (other, line)


def _line_of(indptr: np.ndarray, entry: int) -> int:
    """Return the row (CSR) or column (CSC) of an entry."""
    return int(np.searchsorted(indptr, entry, side="right")) - 1


def _pieces(
    array: np.ndarray, part: int = 0, parts: int = 1, *, length: int = _PIECE, overlap: int = 0
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each piece of a part of the array with its start, plus the first ``overlap`` entries of the next piece."""
    size = len(array) if array.size else 0
    begin, end = (size * bound // parts for bound in (part, part + 1))
    for start in range(begin, end, length):
        yield start, np.asarray(array[start : min(start + length, end) + overlap])


def _broken(what: str, expected: str, received: str) -> NoReturn:
    raise InputError(
        f"{what} is not a matrix: its arrays are inconsistent",
        expected=expected,
        received=received,
        fix="save it again with scipy.sparse.save_npz, after matrix.check_format()",
    )
