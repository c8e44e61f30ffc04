"""Files of tokenized documents: all token ids, and the length of each document.

A folder contains ``ids.bin`` (the ids of all documents, two bytes each if they fit), ``lengths.npy`` and ``store.json``
with sizes and checksums, so that opening a truncated or changed store raises an error instead of giving poor
predictions. All ranks of a host map the same file, so its pages are in memory once.
"""

import hashlib
import io
import json
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.headers import read_header
from xmc_tf.common.folders.kinds import FolderKind

_FORMAT = "xmc_tf.data.TokenStore"
_VERSION = 1
TOKENS = FolderKind(
    "a store of tokens",
    header="store.json",
    recognises=lambda header: header.get("format") == _FORMAT,
    parts={r"store\.json|ids\.bin|lengths\.npy": None},
)
_PIECE = 1 << 22  # number of ids read at a time in a pass over a file
_NARROW: np.dtype = np.dtype("<u2")
_WIDE: np.dtype = np.dtype("<i4")
_FIX = "copy the whole folder again, or tokenize again"


class TokenWriter:
    """A writer of documents in order; created by ``TokenStore.create``."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._dtype = file, _NARROW
        self._crc, self._digest = 0, hashlib.sha256()
        self._lengths: list[np.ndarray] = []

    def write(self, documents: Iterable[Sequence[int] | np.ndarray]) -> None:
        """Append documents.

        Args:
            documents: the ids of each, lists or arrays of whole numbers, possibly empty; preferably some thousands per
                call.
        """
        parts = [np.asarray(document) for document in documents]
        for part in parts:
            if part.ndim != 1 or (part.size and part.dtype.kind not in "iu"):
                raise InputError(
                    "a document is not a list of token ids",
                    expected="one dimension of whole numbers",
                    received=f"{part.dtype} of shape {part.shape}",
                )
        lengths = np.array([part.size for part in parts], np.int32)
        ids = np.concatenate([part for part in parts if part.size] or [np.empty(0, np.int64)]).astype(np.int64)
        if ids.size and (ids.min() < 0 or ids.max() > np.iinfo(np.int32).max):
            wrong = int(ids.min() if ids.min() < 0 else ids.max())
            raise InputError("a token id is out of range", expected="0 to 2,147,483,647", received=str(wrong))
        if ids.size and ids.max() > np.iinfo(_NARROW).max:
            self._widen()
        # The fingerprint does not depend on the type of the ids on disk or as passed.
        self._digest.update(ids.astype(_WIDE).tobytes())
        self._lengths.append(lengths)
        self._append(ids.astype(self._dtype).tobytes())

    def finish(self, folder: Path, about: dict[str, Any]) -> None:
        """Write the files that belong to the ids."""
        self._file.flush()
        lengths = np.concatenate(self._lengths or [np.empty(0, np.int32)])
        buffer = io.BytesIO()
        np.save(buffer, lengths, allow_pickle=False)
        (folder / "lengths.npy").write_bytes(buffer.getvalue())
        self._digest.update(lengths.astype(_WIDE).tobytes())
        header = {
            "format": _FORMAT,
            "version": _VERSION,
            "dtype": self._dtype.name,
            "documents": len(lengths),
            "fingerprint": self._digest.hexdigest()[:32],
            "files": {
                "ids.bin": {"bytes": self._file.tell(), "crc32": self._crc},
                "lengths.npy": {"bytes": len(buffer.getvalue()), "crc32": zlib.crc32(buffer.getvalue())},
            },
            "about": about,
        }
        (folder / "store.json").write_text(json.dumps(header, indent=1) + "\n", encoding="utf-8")

    def _append(self, content: bytes) -> None:
        self._file.write(content)
        self._crc = zlib.crc32(content, self._crc)

    def _widen(self) -> None:
        """Convert the written ids from two bytes to four, because a new id does not fit."""
        if self._dtype == _WIDE:
            return
        self._dtype, self._crc = _WIDE, 0
        self._file.flush()
        total = self._file.tell() // _NARROW.itemsize
        # From the end, so that nothing is overwritten before it is read.
        for start in range((total - 1) // _PIECE * _PIECE, -1, -_PIECE):
            self._file.seek(start * _NARROW.itemsize)
            piece = np.frombuffer(self._file.read(min(_PIECE, total - start) * _NARROW.itemsize), _NARROW)
            self._file.seek(start * _WIDE.itemsize)
            self._file.write(piece.astype(_WIDE).tobytes())
        self._file.seek(0)
        for start in range(0, total, _PIECE):
            self._crc = zlib.crc32(self._file.read(min(_PIECE, total - start) * _WIDE.itemsize), self._crc)


def open_files(folder: Path, verify: bool) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Read and check a finished store.

    Args:
        folder: the folder.
        verify: whether to compare the ids' checksum, which reads them all.

    Returns:
        The ids, mapped; the lengths; the header.
    """
    header = _header(folder)
    lengths = _read_lengths(folder, header)
    ids = _map_ids(folder, header, verify)
    if int(lengths.sum(dtype=np.int64)) != len(ids):
        raise _unexpected(folder / "lengths.npy", f"lengths that add up to {len(ids):,} tokens")
    return ids, lengths, header


def _header(folder: Path) -> dict[str, Any]:
    path = folder / "store.json"
    header = read_header(path, _FORMAT, _VERSION, of="a token store", fix=_FIX)
    if not _is_whole(header):
        raise _unexpected(path, "the type of the ids, and sizes and checksums of ids.bin and lengths.npy")
    return header


def _is_whole(header: dict[str, Any]) -> bool:
    """Return whether a header has everything that is needed to read the other files."""
    files = header.get("files")
    if not isinstance(files, dict):
        return False
    return (
        header.get("dtype") in (_NARROW.name, _WIDE.name)
        and isinstance(header.get("documents"), int)
        and isinstance(header.get("fingerprint"), str)
        and isinstance(header.get("about"), dict)
        and all(_is_entry(files.get(name)) for name in ("ids.bin", "lengths.npy"))
    )


def _is_entry(entry: object) -> bool:
    """Return whether an entry has a file's size and checksum."""
    return isinstance(entry, dict) and all(isinstance(entry.get(key), int) for key in ("bytes", "crc32"))


def _check_size(path: Path, header: dict[str, Any]) -> dict[str, int]:
    """Return the file's entry in the header, after a check of its size."""
    entry = header["files"][path.name]
    if not path.is_file():
        raise InputError(f"{path} is missing", expected=f"a file of {entry['bytes']:,} bytes", fix=_FIX)
    if path.stat().st_size != entry["bytes"]:
        raise InputError(
            f"{path} has a different size than when it was saved",
            expected=f"{entry['bytes']:,} bytes",
            received=f"{path.stat().st_size:,}",
            fix=_FIX,
        )
    return entry


def _read_lengths(folder: Path, header: dict[str, Any]) -> np.ndarray:
    path = folder / "lengths.npy"
    entry = _check_size(path, header)
    content = path.read_bytes()
    if zlib.crc32(content) != entry["crc32"]:
        raise _changed(path)
    try:
        lengths = np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, EOFError):
        raise _unexpected(path, "an array of int32") from None
    if not isinstance(lengths, np.ndarray) or lengths.dtype != np.int32 or lengths.shape != (header["documents"],):
        raise _unexpected(path, f"int32 of {header['documents']:,} documents")
    if len(lengths) and lengths.min() < 0:
        raise _unexpected(path, "no length below 0")
    return lengths


def _map_ids(folder: Path, header: dict[str, Any], verify: bool) -> np.ndarray:
    path = folder / "ids.bin"
    entry = _check_size(path, header)
    if verify:
        crc = 0
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                crc = zlib.crc32(piece, crc)
        if crc != entry["crc32"]:
            raise _changed(path)
    dtype = np.dtype(header["dtype"]).newbyteorder("<")
    if entry["bytes"] % dtype.itemsize:
        raise _unexpected(path, f"whole numbers of {dtype.itemsize} bytes")
    if not entry["bytes"]:
        return np.empty(0, dtype)  # empty arrays cannot be mapped
    return np.asarray(np.memmap(path, dtype, mode="r"))


def _changed(path: Path) -> InputError:
    return InputError(
        f"{path} has changed since it was saved", expected="the bytes with that checksum", received="others", fix=_FIX
    )


def _unexpected(path: Path, expected: str) -> InputError:
    return InputError(f"{path} has unexpected content", expected=expected, fix=_FIX)
