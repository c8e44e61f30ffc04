"""Writing of .npz files that can be mapped: uncompressed, aligned, and in pieces that may exceed memory."""

import math
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.lib import format as npy_format

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.writing import write_in_steps


class Stream(NamedTuple):
    """An array that is computed piece by piece while it is written.

    Args:
        dtype: type of its numbers.
        length: number of its numbers.
        pieces: returns them in order, in flat arrays.
    """

    dtype: np.dtype
    length: int
    pieces: Callable[[], Iterable[np.ndarray]]


def write_npz(path: Path, members: Mapping[str, np.ndarray | Stream], comment: str = "") -> None:
    """Write an uncompressed .npz whose data begin at multiples of 64 bytes, unlike numpy's.

    Mapped arrays are then aligned, so that compiled kernels need no second version for unaligned arrays. The header of
    an .npy may be padded with spaces, which is used for the alignment.

    Example:
        >>> write_npz(path, {"data": Stream(np.dtype("f4"), 6, lambda: (block.weights for block in blocks))})

    Args:
        path: the file; an existing file is overwritten.
        members: the arrays by name, in the order in which they are written.
        comment: of the archive.
    """
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.comment = comment.encode()
        for name, array in members.items():
            shape = (array.length,) if isinstance(array, Stream) else array.shape
            pieces = array.pieces() if isinstance(array, Stream) else [array]
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                start = archive.fp.tell()  # type: ignore[union-attr]
                member.write(padded_head(array.dtype, shape, start))
                written = 0
                for piece in pieces:
                    if piece.size:
                        flat = np.ascontiguousarray(piece, array.dtype).reshape(-1).view(np.uint8).data
                        write_in_steps(member, flat)
                        written += piece.size
            if written != math.prod(shape):
                raise InputError(
                    f"{path}: the pieces of {name} do not add up",
                    expected=f"{math.prod(shape):,} numbers",
                    received=f"{written:,}",
                )


def padded_head(dtype: np.dtype, shape: tuple[int, ...], start: int, extra: int = 0) -> bytes:
    """Return the header of an .npy that begins ``start`` bytes into a file, padded so that its data are aligned.

    Args:
        dtype: type of its numbers.
        shape: shape of the array.
        start: where it begins.
        extra: number of further spaces, a multiple of 64.
    """
    head = {"descr": npy_format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    text = repr(head).encode("latin1")
    before = len(npy_format.MAGIC_PREFIX) + 2 + 2  # version and length
    slack = -(start + before + len(text) + 1) % 64
    text += b" " * (slack + extra) + b"\n"
    return npy_format.magic(1, 0) + len(text).to_bytes(2, "little") + text
