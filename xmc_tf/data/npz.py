"""Untrusted .npz files, read and written. Uncompressed arrays can be mapped, so that all processes share one copy."""

import struct
import zipfile
import zlib
from collections.abc import Mapping
from io import BytesIO
from mmap import ACCESS_READ
from mmap import mmap as MemoryMap  # noqa: N812  parameters are called mmap
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.lib import format as npy_format

from xmc_tf.common.errors import InputError
from xmc_tf.common.regular import existing_file
from xmc_tf.store.arrays import check_length, damaged, mapped_array, padded_head, read_data, read_head
from xmc_tf.store.files import write_in_steps

_MAGIC = b"PK\x03\x04"  # at the beginning of an archive, and of each of its members
_LOCAL_HEADER = struct.Struct("<4s5H3I2H")  # of a member, without its name
# An archive that expands to more than this, and by more than this factor, is considered a zip bomb. Equal values shrink
# a thousandfold, but their indices do not: real matrices of labels shrink five to twentyfold.
BOMB_BYTES = 1 << 28
BOMB_RATIO = 100


def file_format(path: str | Path) -> Literal["npy", "npz", ""]:
    """Return the format of a file, detected from its first bytes regardless of its name."""
    with open(path, "rb") as file:
        head = file.read(len(npy_format.MAGIC_PREFIX))
    if head == npy_format.MAGIC_PREFIX:
        return "npy"
    return "npz" if head[:4] in (_MAGIC, b"PK\x05\x06") else ""


def read_npz(
    path: str | Path, *, name: str = "arrays", wanted: tuple[str, ...] | None = None, mmap: bool = True
) -> dict[str, np.ndarray]:
    """Read the ``wanted`` members that an .npz file has (None: all). ``mmap`` maps uncompressed ones read-only."""
    path = existing_file(path, name)
    what = f"{name}: {path}"
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            found = [info for info in archive.infolist() if info.filename.endswith(".npy")]
            members = {info.filename.removesuffix(".npy"): info for info in found}
            members = {key: info for key, info in members.items() if wanted is None or key in wanted}
            size, unfolded = path.stat().st_size, sum(info.file_size for info in members.values())
            if unfolded > BOMB_BYTES and unfolded > BOMB_RATIO * size:
                raise InputError(
                    f"{what} expands to {unfolded:,} bytes, {unfolded // max(size, 1):,} times its size",
                    expected=f"at most {BOMB_RATIO} times",
                    received="probably a zip bomb",
                    fix="if this size is intended, save the file without compression",
                )
            whole = MemoryMap(file.fileno(), 0, access=ACCESS_READ) if mmap else None  # once for all members
            return {key: _read_member(whole, archive, info, what) for key, info in members.items()}
    except InputError:
        raise
    except NotImplementedError as error:
        raise InputError(f"{what} cannot be read", expected="an .npz as numpy writes it", received=str(error)) from None
    except (zipfile.BadZipFile, zipfile.LargeZipFile, struct.error, EOFError, OverflowError, ValueError) as error:
        raise damaged(what, str(error)) from None


def _read_member(whole: MemoryMap | None, archive: zipfile.ZipFile, info: zipfile.ZipInfo, what: str) -> np.ndarray:
    what = f"{what}, member {info.filename}"
    if info.flag_bits & 1:
        raise InputError(f"{what} is encrypted", expected="an .npz without a password")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise InputError(
            f"{what} has an unsupported compression",
            expected="no compression, or numpy's",
            received=f"zip method {info.compress_type}",
            fix="save it again with scipy.sparse.save_npz(..., compressed=False)",
        )
    if whole is not None and info.compress_type == zipfile.ZIP_STORED:
        start = _data_start(info, whole[info.header_offset : info.header_offset + _LOCAL_HEADER.size])
        header = read_head(BytesIO(whole[start : start + (1 << 16) + 16]), what)
        check_length(header, info.file_size - header.length, what)
        if start + info.file_size > len(whole):
            raise damaged(what, "it ends before its data do")
        return mapped_array(whole, start, header)
    try:
        with archive.open(info) as file:
            header = read_head(file, what)
            check_length(header, info.file_size - header.length, what)
            return read_data(file, header, what)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise damaged(what, str(error)) from None


def _data_start(info: zipfile.ZipInfo, head: bytes) -> int:
    """Return the offset of a member's data. Its header (``head``) may be longer than the archive's directory says."""
    if info.header_offset < 0 or len(head) < _LOCAL_HEADER.size or head[:4] != _MAGIC:
        raise zipfile.BadZipFile(f"the header of {info.filename[:100]} is not where the archive's directory says")
    *_, name_length, extra_length = _LOCAL_HEADER.unpack(head)
    return info.header_offset + _LOCAL_HEADER.size + name_length + extra_length


def write_npz(path: Path, members: Mapping[str, np.ndarray], comment: str = "") -> None:
    """Write an uncompressed .npz file. Each array's data begin at a multiple of 64 bytes, so that it can be mapped."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.comment = comment.encode()
        for name, array in members.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                start = archive.fp.tell()  # type: ignore[union-attr]
                member.write(padded_head(array.dtype, array.shape, start))
                if array.size:
                    write_in_steps(member, np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
