"""Read and write feature and label matrices, and determine the names of output files."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import coo_matrix, csc_matrix, csr_matrix, issparse

from xmc_tf.common.errors import InputError
from xmc_tf.common.regular import existing_file
from xmc_tf.data.array_checks import ALONE, Scan, check_finite, check_indices, check_pointers
from xmc_tf.data.checks import check_pair
from xmc_tf.data.features import Features, as_features
from xmc_tf.data.npz import file_format, read_npz, write_npz
from xmc_tf.store.arrays import index_type, read_npy, write_npy
from xmc_tf.store.files import atomic_file

_LOG = logging.getLogger(__name__)
_MUCH_TO_SORT = 500_000_000  # bytes; sorting fewer takes no noticeable time
# Rows and columns without entries take no room in the file, but several bytes each in memory, so their number is
# limited. Hashed features, which leave most columns empty, stay far below.
_MAX_EMPTY = 1 << 27
_OTHER_FORMATS = frozenset(
    (".npz", ".npy", ".jsonl", ".json", ".csv", ".tsv", ".txt", ".gz", ".zip", ".pkl", ".parquet", ".xlsx", ".h5")
)
_MEMBERS = ("format", "shape", "data", "indices", "indptr", "row", "col", "coords")


def load_matrix(
    path: str | Path, *, name: str = "matrix", mmap: bool = True, scan: Scan = ALONE
) -> csr_matrix | csc_matrix | np.ndarray:
    """Read a matrix, check it, and convert it to the form that the package expects.

    Example:
        >>> X = load_matrix("X.trn.npz", name="features")

    Args:
        path: a scipy .npz file (CSR, CSC or COO, any index type, compressed or not) or a dense .npy file.
        name: name of the matrix in messages.
        mmap: whether to map arrays into memory if they are uncompressed and of the right type. Mapped arrays are
            read-only and shared by all processes on the machine.
        scan: the shared scan that checks the numbers; all ranks that share it must load the same file.

    Returns:
        A CSR or CSC matrix with sorted indices and no duplicates (COO becomes CSR), or a C-contiguous array. All values
        are float32 and finite.

    Raises:
        InputError: the file cannot be used. The error names the file and, where possible, the row and column.
    """
    path = existing_file(path, name)
    what = f"{name}: {path}"
    form = file_format(path)
    if form == "npz":
        matrix = _sparse(read_npz(path, name=name, wanted=_MEMBERS, mmap=mmap), what, scan)
    elif form == "npy":
        array = read_npy(path, name=name, mmap=mmap)
        if array.ndim != 2:
            raise InputError(
                f"{what} is not a matrix",
                expected="two dimensions, rows by columns",
                received=f"shape {array.shape}",
                fix="reshape it; a single row is array[None, :]",
            )
        matrix = np.ascontiguousarray(_values(array, what))
    else:
        raise InputError(
            f"{what} is not a matrix",
            expected="a scipy .npz or a numpy .npy",
            received="a file of neither format",
            fix="save it with scipy.sparse.save_npz or numpy.save; give texts with -t",
        )
    check_finite(matrix, what, scan)
    return matrix


def save_matrix(path: str | Path, matrix: Any, *, any_name: bool = False, mark: str = "") -> None:
    """Write a matrix atomically as an .npz or .npy file that can be mapped; ``mark`` identifies a command's output."""
    path = Path(path)
    suffix = ".npz" if issparse(matrix) else ".npy"
    if path.suffix != suffix and not any_name:
        raise InputError(
            f"{path} is not a name for a {'sparse' if issparse(matrix) else 'dense'} matrix",
            expected=f"a name that ends in {suffix}",
            received=path.suffix or "no ending",
        )
    with atomic_file(path) as part:
        if not issparse(matrix):
            write_npy(part, np.asarray(matrix, np.float32), mark)
            return
        matrix = matrix if matrix.format in ("csr", "csc") else csr_matrix(matrix)
        index = index_type(matrix.shape, matrix.nnz)
        write_npz(
            part,
            {
                "indices": np.ascontiguousarray(matrix.indices, dtype=index),
                "indptr": np.ascontiguousarray(matrix.indptr, dtype=index),
                "format": np.array(matrix.format.encode("ascii")),
                "shape": np.array(matrix.shape, dtype=np.int64),
                "data": np.ascontiguousarray(matrix.data, dtype=np.float32),
            },
            mark,
        )


def load_features(paths: Sequence[str | Path], *, scan: Scan = ALONE) -> Features:
    """Read one feature file, or a sparse and a dense file, whose columns are concatenated in this order."""
    parts = [load_matrix(path, name="features", scan=scan) for path in paths]
    if len(parts) == 1:
        return as_features(parts[0])
    if len(parts) != 2 or not issparse(parts[0]) or issparse(parts[1]):
        raise InputError(
            f"{', '.join(map(str, paths))} cannot be concatenated",
            expected="one matrix, or a sparse one (.npz) and a dense one (.npy) in this order",
            received=", ".join("sparse" if issparse(part) else "dense" for part in parts),
        )
    check_pair(parts[0], parts[1], str(paths[0]), str(paths[1]))
    return as_features((parts[0], parts[1]))


def prediction_path(path: str | None, folder_name: str | None = None) -> str | None:
    """Return the output path of a prediction command: ``path``, or ``path/folder_name`` if ``path`` is a folder."""
    if path is not None and folder_name and Path(path).is_dir():
        return str(Path(path) / folder_name)
    if path is not None and Path(path).suffix not in (".npz", ".jsonl"):
        _check_name(path, "predictions are", "a name that ends in .npz (a matrix) or in .jsonl (a line per document)")
    return path


def embedding_path(path: str) -> Path:
    """Return the output path of an embedding command: ``path``, or ``path/embeddings.npy`` if ``path`` is a folder."""
    if Path(path).is_dir():
        return Path(path) / "embeddings.npy"
    if Path(path).suffix != ".npy":
        _check_name(path, "embeddings are", "a name that ends in .npy")
    return Path(path)


def _check_name(path: str, what: str, expected: str) -> None:
    """Raise an error if a file name implies another format. Names without a known extension are valid, as in PECOS."""
    if Path(path).suffix.lower() in _OTHER_FORMATS:
        raise InputError(
            f"-o {path}: {what} not written in this format",
            expected=f"{expected}, or a name without an extension (a matrix)",
            received=Path(path).suffix,
        )
    if Path(path).is_dir():
        raise InputError(f"-o {path} is a folder", expected=expected, fix="name a file in it")


def _sparse(arrays: dict[str, np.ndarray], what: str, scan: Scan) -> csr_matrix | csc_matrix:
    form = arrays["format"].tobytes().replace(b"\0", b"").decode("ascii", "replace") if "format" in arrays else ""
    if form not in ("csr", "csc", "coo"):
        raise InputError(
            f"{what} contains no sparse matrix in a supported format",
            expected="format csr, csc or coo, as scipy.sparse.save_npz writes it",
            received=f"format {form}" if form else f"an archive of {', '.join(arrays) or 'other content'}",
            fix="save matrix.tocsr() with scipy.sparse.save_npz, or a dense array with numpy.save",
        )
    places = ("coords",) if "coords" in arrays else ("row", "col")
    needed = places if form == "coo" else ("indices", "indptr")
    if missing := [key for key in ("shape", "data", *needed) if key not in arrays]:
        raise InputError(
            f"{what} lacks {', '.join(missing)}",
            expected=f"a whole {form} matrix, as scipy.sparse.save_npz writes it",
            received=f"only {', '.join(arrays)}",
            fix="save it again",
        )
    sides = arrays["shape"]
    if sides.shape != (2,) or sides.dtype.kind not in "iu" or (sides < 0).any() or (sides > 2**62).any():
        expected = "a shape of two whole numbers, rows and columns"
        raise InputError(f"{what} is not a matrix", expected=expected, received=f"{sides}")
    shape, nr_entries = (int(sides[0]), int(sides[1])), arrays["data"].size
    most = max(_MAX_EMPTY, nr_entries)
    # The axis with pointers needs no such check, because the file has a pointer for each row or column.
    for axis, side, pointers in (("rows", shape[0], "csr"), ("columns", shape[1], "csc")):
        if form != pointers and side > most:
            raise InputError(
                f"{what} has too many {axis} for its {nr_entries:,} entries",
                expected=f"at most {most:,}",
                received=f"{side:,}",
                fix="save the matrix with its true shape; hash features into at most 2^27 columns",
            )
    data = _values(arrays["data"], what)
    if data.ndim != 1:
        raise InputError(f"{what}: data is not a list of values", expected="1 dimension", received=f"{data.ndim}")
    if form == "coo":
        return _from_coo(arrays, data, shape, what)
    return _compressed(arrays, data, form == "csr", shape, what, scan)


def _compressed(
    arrays: dict[str, np.ndarray], data: np.ndarray, by_row: bool, shape: tuple[int, int], what: str, scan: Scan
) -> csr_matrix | csc_matrix:
    indices, indptr = arrays["indices"], arrays["indptr"]
    nr_major, nr_minor = shape if by_row else shape[::-1]
    for key, array in (("indices", indices), ("indptr", indptr)):
        if array.dtype.kind not in "iu":
            raise InputError(f"{what}: {key} are not whole numbers", expected="integers", received=str(array.dtype))
    if indices.shape != data.shape:
        raise InputError(
            f"{what} is not a matrix: its arrays are inconsistent",
            expected="as many indices as values",
            received=f"{indices.size:,} indices and {data.size:,} values",
            fix="save it again",
        )
    check_pointers(indptr, nr_major, len(data), what)
    canonical = check_indices(indptr, indices, nr_minor, what, "row" if by_row else "column", scan)
    index = index_type(shape, len(data))
    matrix = (csr_matrix if by_row else csc_matrix)(shape, dtype=np.float32)
    # Set directly, because the constructor would scan all indices again, and copy some arrays.
    matrix.data, matrix.indices = data, np.asarray(indices, dtype=index)
    matrix.indptr = np.asarray(indptr, dtype=index)
    if not canonical:
        size = data.nbytes + indices.nbytes
        _LOG.log(
            logging.INFO if size >= _MUCH_TO_SORT else logging.DEBUG,
            "%s: indices are unsorted or occur twice; sorting them in memory takes %.1f GB. "
            "To avoid this, save the matrix again after matrix.sum_duplicates()", what, size / 1e9,
        )  # fmt: skip
        matrix = matrix.copy()
        matrix.sum_duplicates()
    matrix.has_canonical_format = True
    return matrix


def _from_coo(arrays: dict[str, np.ndarray], data: np.ndarray, shape: tuple[int, int], what: str) -> csr_matrix:
    places = tuple(arrays["coords"]) if "coords" in arrays else (arrays["row"], arrays["col"])
    for axis, place in zip(("row", "column"), places, strict=False):
        if place.dtype.kind not in "iu" or place.shape != data.shape or len(places) != 2:
            raise InputError(
                f"{what} is not a matrix: its arrays are inconsistent",
                expected=f"a whole number for the {axis} of each of the {data.size:,} values",
                received=f"an array of shape {place.shape}, {place.dtype}",
                fix="save it again",
            )
        limit = shape[0] if axis == "row" else shape[1]
        if place.size and (place.min() < 0 or place.max() >= limit):
            raise InputError(
                f"{what}: a {axis} is out of range",
                expected=f"{axis}s from 0 to {limit - 1:,}",
                received=f"{place.min()} to {place.max()}",
                fix="save it again with the right shape",
            )
    index = index_type(shape, len(data))
    matrix = coo_matrix((data, tuple(np.asarray(place, dtype=index) for place in places)), shape=shape).tocsr()
    matrix.sum_duplicates()
    return matrix


def _values(array: np.ndarray, what: str) -> np.ndarray:
    """Return the values as float32; they are copied only if they have another type."""
    if array.dtype.kind not in "fiub":
        raise InputError(f"{what} holds no numbers", expected="integers or floats", received=str(array.dtype))
    if array.dtype == np.dtype(np.float32) and array.dtype.isnative:
        return array
    with np.errstate(over="ignore"):  # check_finite finds overflows
        return array.astype(np.float32)
