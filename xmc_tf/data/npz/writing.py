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
    """An array whose flat pieces are computed while it is written."""

    dtype: np.dtype
    length: int
    pieces: Callable[[], Iterable[np.ndarray]]


def write_npz(path: Path, members: Mapping[str, np.ndarray | Stream], comment: str = "") -> None:
    """Write an uncompressed .npz whose data begin at multiples of 64 bytes, so that mapped arrays are aligned."""
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
                problem, expected = f"{path}: the pieces of {name} do not add up", f"{math.prod(shape):,} numbers"
                raise InputError(problem, expected=expected, received=f"{written:,}")


def padded_head(dtype: np.dtype, shape: tuple[int, ...], start: int, extra: int = 0) -> bytes:
    """Return the header of an .npy that begins at byte ``start``, padded so that its data are aligned."""
    head = {"descr": npy_format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    text = repr(head).encode("latin1")
    before = len(npy_format.MAGIC_PREFIX) + 2 + 2  # version and length
    text += b" " * (-(start + before + len(text) + 1) % 64 + extra) + b"\n"
    return npy_format.magic(1, 0) + len(text).to_bytes(2, "little") + text
