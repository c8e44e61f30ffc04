"""The folder of a token store: ``ids.bin``, ``lengths.npy``, ``windows.npy`` for long documents, and ``store.json``."""

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
from xmc_tf.common.folders.checksums import check_content, content_record, is_content_record
from xmc_tf.common.folders.kinds import FolderKind

_FORMAT = "xmc_tf.data.TokenStore"
_VERSION = 1
TOKENS = FolderKind(
    "a store of tokens",
    header="store.json",
    recognises=lambda header: header.get("format") == _FORMAT,
    parts={r"store\.json|ids\.bin|lengths\.npy|windows\.npy": None},
)
_NARROW: np.dtype = np.dtype("<u2")
_WIDE: np.dtype = np.dtype("<i4")
_FIX = "copy the whole folder again, or tokenize again"


class TokenWriter:
    """A writer of documents in order; created by ``TokenStore.create``."""

    def __init__(self, file: BinaryIO, vocabulary_size: int) -> None:
        self._file = file
        self._dtype = _NARROW if vocabulary_size <= 1 << 16 else _WIDE
        self._crc, self._digest = 0, hashlib.sha256()
        self._lengths: list[np.ndarray] = []
        self._windows: list[np.ndarray] = []

    def write(self, windows: Iterable[Sequence[int] | np.ndarray], counts: np.ndarray | None = None) -> None:
        """Append documents: the ids of each window, and the number of windows of each document (default: one each)."""
        parts = [np.asarray(window) for window in windows]
        counts = np.ones(len(parts), np.int32) if counts is None else np.asarray(counts, np.int32)
        if counts.sum(dtype=np.int64) != len(parts) or counts.min(initial=1) < 1:
            raise InputError(
                "the windows do not fit the documents",
                expected="one window or more for each document",
                received=f"{len(parts):,} windows of {len(counts):,} documents",
            )
        for part in parts:
            if part.ndim != 1 or (part.size and part.dtype.kind not in "iu"):
                raise InputError(
                    "a document is not a list of token ids",
                    expected="one dimension of whole numbers",
                    received=f"{part.dtype} of shape {part.shape}",
                )
        lengths = np.array([part.size for part in parts], np.int32)
        ids = np.concatenate([part for part in parts if part.size] or [np.empty(0, np.int64)]).astype(np.int64)
        largest = np.iinfo(self._dtype).max
        if ids.size and (ids.min() < 0 or ids.max() > largest):
            wrong = int(ids.min() if ids.min() < 0 else ids.max())
            raise InputError("a token id is out of range", expected=f"0 to {largest:,}", received=str(wrong))
        # The fingerprint does not depend on the type of the ids on disk or as passed.
        self._digest.update(ids.astype(_WIDE).tobytes())
        self._lengths.append(lengths)
        self._windows.append(counts)
        content = ids.astype(self._dtype).tobytes()
        self._file.write(content)
        self._crc = zlib.crc32(content, self._crc)

    def finish(self, folder: Path, about: dict[str, Any]) -> None:
        """Write the other files of the folder."""
        self._file.flush()
        lengths, windows = (np.concatenate([np.empty(0, np.int32), *some]) for some in (self._lengths, self._windows))
        # Without long documents, there is nothing to tell them apart from a store of truncated ones.
        arrays = {"lengths.npy": lengths} | ({"windows.npy": windows} if len(windows) < len(lengths) else {})
        entries = {"ids.bin": {"bytes": self._file.tell(), "crc32": self._crc}}
        for name, array in arrays.items():
            self._digest.update(array.astype(_WIDE).tobytes())
            entries[name] = _save(folder / name, array)
        header = {
            "format": _FORMAT,
            "version": _VERSION,
            "dtype": self._dtype.name,
            "documents": len(windows),
            "fingerprint": self._digest.hexdigest()[:32],
            "files": entries,
            "about": about,
        }
        (folder / "store.json").write_text(json.dumps(header, indent=1) + "\n", encoding="utf-8")


def _save(path: Path, array: np.ndarray) -> dict[str, int]:
    """Write an array; return its size and checksum."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    path.write_bytes(buffer.getvalue())
    return content_record(buffer.getvalue())


def open_files(folder: Path, verify: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, dict[str, Any]]:
    """Check a store; return its ids (mapped), window lengths, windows per document (None: one each), and header."""
    header = _header(folder)
    lengths, windows = _read_counts(folder, "lengths.npy", header), None
    nr_windows = header["documents"]
    if "windows.npy" in header["files"]:
        windows = _read_counts(folder, "windows.npy", header)
        nr_windows = int(windows.sum(dtype=np.int64))
        if len(windows) != header["documents"] or windows.min(initial=1) < 1:
            raise _unexpected(
                folder / "windows.npy", f"one window or more for each of {header['documents']:,} documents"
            )
    if len(lengths) != nr_windows:
        raise _unexpected(folder / "lengths.npy", f"int32 of {nr_windows:,} documents")
    ids = _map_ids(folder, header, verify)
    if int(lengths.sum(dtype=np.int64)) != len(ids):
        raise _unexpected(folder / "lengths.npy", f"lengths that add up to {len(ids):,} tokens")
    return ids, lengths, windows, header


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
        and all(is_content_record(files.get(name)) for name in {"ids.bin", "lengths.npy", *files})
    )


def _read_counts(folder: Path, name: str, header: dict[str, Any]) -> np.ndarray:
    path = folder / name
    check_content(path, header["files"][name], _FIX)
    try:
        counts = np.load(path, allow_pickle=False)
    except (ValueError, EOFError):
        raise _unexpected(path, "an array of int32") from None
    if not isinstance(counts, np.ndarray) or counts.dtype != np.int32 or counts.ndim != 1:
        raise _unexpected(path, f"int32 of {header['documents']:,} documents")
    if len(counts) and counts.min() < 0:
        raise _unexpected(path, "no length below 0")
    return counts


def _map_ids(folder: Path, header: dict[str, Any], verify: bool) -> np.ndarray:
    path = folder / "ids.bin"
    entry = header["files"][path.name]
    check_content(path, entry, _FIX, all_bytes=verify)
    dtype = np.dtype(header["dtype"]).newbyteorder("<")
    if entry["bytes"] % dtype.itemsize:
        raise _unexpected(path, f"whole numbers of {dtype.itemsize} bytes")
    if not entry["bytes"]:
        return np.empty(0, dtype)  # empty arrays cannot be mapped
    return np.asarray(np.memmap(path, dtype, mode="r"))


def _unexpected(path: Path, expected: str) -> InputError:
    return InputError(f"{path} has unexpected content", expected=expected, fix=_FIX)
