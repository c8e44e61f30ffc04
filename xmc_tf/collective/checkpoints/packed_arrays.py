"""Packs many arrays into few files: each file must be flushed separately, and an encoder has hundreds of arrays."""

import zlib
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from io import BufferedWriter, FileIO
from math import prod
from pathlib import Path
from typing import TypeAlias

import numpy as np

from xmc_tf.collective.checkpoints.shard_files import BLOCK_BYTES, blocks, check_length, flush
from xmc_tf.common.errors import InputError
from xmc_tf.common.serialization import register

# The maximum length of a file. A longer array has its own file.
PACK_BYTES = 1 << 30
_ALIGNMENT = 64  # so that arrays in a file can be mapped into memory

# An array, or a function that returns it.
ArraySource: TypeAlias = np.ndarray | Callable[[], np.ndarray]


@register
@dataclass(frozen=True)
class SavedArray:
    shape: list[int]
    dtype: str  # as NumPy spells it
    file: str
    offset: int
    block_bytes: int  # bytes per checksum
    checksums: list[int]  # the CRC-32 of each block

    @property
    def bytes(self) -> int:
        return prod(self.shape) * np.dtype(self.dtype).itemsize


@register
@dataclass(frozen=True)
class Packed:
    files: dict[str, int]  # their lengths
    arrays: dict[str, SavedArray]


def write_arrays(folder: Path, given: Mapping[str, ArraySource], stem: str = "replicated") -> Packed:
    """Write arrays, or the results of functions, to files whose names begin with ``stem``, and flush them to disk."""
    files: dict[str, int] = {}
    arrays: dict[str, SavedArray] = {}
    with ExitStack() as stack:
        file: BufferedWriter | None = None
        for name, one in given.items():
            value = np.asarray(one() if callable(one) else one)
            if value.dtype.hasobject or value.dtype.kind not in "biufcSU":
                raise InputError(
                    f"extra[{name!r}] cannot be saved",
                    expected="an array of numbers or text",
                    received=f"{value.dtype}",
                )
            if file is None or (file.tell() and _aligned(file.tell()) + value.nbytes > PACK_BYTES):
                stack.close()
                file = stack.enter_context((folder / f"{stem}-{len(files):05d}.bin").open("wb"))
                stack.callback(flush, file)
            file.write(bytes(_aligned(file.tell()) - file.tell()))
            at, path, checksums = file.tell(), Path(file.name).name, []
            raw = np.ascontiguousarray(value).reshape(-1).view(np.uint8).data
            for low, high in blocks(0, len(raw), BLOCK_BYTES):
                file.write(raw[low:high])
                checksums.append(zlib.crc32(raw[low:high]))
            arrays[name] = SavedArray(list(value.shape), value.dtype.str, path, at, BLOCK_BYTES, checksums)
            files[path] = file.tell()
    return Packed(files, arrays)


def read_arrays(folder: Path, packed: Packed) -> dict[str, np.ndarray]:
    for name, length in packed.files.items():
        check_length(folder / name, length)
    found = {}
    for name, saved in packed.arrays.items():
        _check_place(folder, packed, name, saved)
        raw, wrong = np.empty(saved.bytes, np.uint8), False
        # The file is opened again for each array: that is cheap, and the table of contents may be in any order.
        with FileIO(folder / saved.file) as file:
            file.seek(saved.offset)
            for number, (low, high) in enumerate(blocks(0, len(raw), saved.block_bytes)):
                block, done = raw.data[low:high], 0
                while done < len(block) and (count := file.readinto(block[done:])):
                    done += count
                wrong |= done != high - low or saved.checksums[number : number + 1] != [zlib.crc32(block)]
        if wrong:
            raise InputError(
                f"{folder / saved.file}, array {name!r}: the content has changed since it was saved",
                expected=f"the checksum that {folder.parent.name}'s manifest has for it",
                fix="the file was damaged, or comes from another checkpoint: copy the whole checkpoint again",
            )
        found[name] = raw.view(np.dtype(saved.dtype)).reshape(saved.shape)
    return found


def _check_place(folder: Path, packed: Packed, name: str, saved: SavedArray) -> None:
    """Raise InputError if an array does not fit into its file. This runs before memory is allocated for the array."""
    try:
        whole = min(saved.shape, default=0) >= 0 and saved.offset >= 0 and saved.block_bytes > 0
        whole = whole and saved.offset + saved.bytes <= packed.files[saved.file] and not np.dtype(saved.dtype).hasobject
    except (TypeError, ValueError, KeyError):
        whole = False
    if not whole:
        raise InputError(
            f"{folder / str(saved.file)}, array {name!r}: its entry in the manifest is wrong",
            expected="a range of bytes inside the file",
            received=f"shape {saved.shape}, type {saved.dtype} from byte {saved.offset} on",
            fix="the manifest was damaged: copy the whole checkpoint again",
        )


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT
