"""The folder of a fitted TF-IDF: parameters as JSON, arrays without pickles, the vocabulary as readable text.

``params.json`` contains the sizes and checksums of the other files, so that loading an incomplete or mixed folder
raises an error instead of giving poor predictions.
"""

import io
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.headers import read_header
from xmc_tf.common.folders.checksums import verified
from xmc_tf.common.folders.kinds import FolderKind
from xmc_tf.common.folders.placing import placed_folder
from xmc_tf.features.vocabulary import Vocabulary
from xmc_tf.params import TfidfParams

_FORMAT = "xmc_tf.features.Tfidf"
_VERSION = 1
_FIX = "copy the whole folder again, or fit again"
TFIDF_FILES = r"params\.json|vocabulary\.txt|(keys|columns|idf)\.npy"
_KIND = FolderKind(
    "a fitted TF-IDF",
    header="params.json",
    recognises=lambda header: header.get("format") == _FORMAT,
    parts={TFIDF_FILES: None},
)
_ARRAYS = {"keys": np.int64, "columns": np.int32, "idf": np.float32}


def save(folder: str | Path, params: TfidfParams, vocabulary: Vocabulary, nr_documents: int) -> None:
    """Write the folder; it replaces an older TF-IDF atomically, other files stay."""
    contents = {"vocabulary.txt": vocabulary.lines()}
    for name in _ARRAYS:
        buffer = io.BytesIO()
        np.save(buffer, getattr(vocabulary, name), allow_pickle=False)
        contents[f"{name}.npy"] = buffer.getvalue()
    header = {
        "format": _FORMAT,
        "version": _VERSION,
        "nr_documents": nr_documents,
        "nr_features": len(vocabulary),
        "params": params.to_json(),
        "files": {name: {"bytes": len(content), "crc32": zlib.crc32(content)} for name, content in contents.items()},
    }
    with placed_folder(folder, _KIND) as part:
        for name, content in contents.items():
            (part / name).write_bytes(content)
        (part / "params.json").write_text(json.dumps(header, indent=1) + "\n", encoding="utf-8")


def load(folder: str | Path) -> tuple[TfidfParams, Vocabulary, int]:
    """Read and check a folder that `save` wrote.

    Returns:
        The parameters, the vocabulary, and the number of documents it was fitted to.

    Raises:
        InputError: a file is missing, truncated, changed, or inconsistent with the others; the error names it.
    """
    folder = Path(folder)
    with verified(folder):
        return _load(folder)


def _load(folder: Path) -> tuple[TfidfParams, Vocabulary, int]:
    header = _header(folder)
    arrays = {name: _read_array(folder, f"{name}.npy", dtype, header) for name, dtype in _ARRAYS.items()}
    keys, columns, idf = arrays["keys"], arrays["columns"], arrays["idf"]
    if not (keys[1:] > keys[:-1]).all():
        raise _unexpected(folder / "keys.npy", "keys in ascending order, none twice")
    seen = np.zeros(len(columns), bool)
    seen[columns[(columns >= 0) & (columns < len(columns))]] = True
    if not seen.all():
        raise _unexpected(folder / "columns.npy", f"each of the numbers 0 to {len(columns) - 1} once")
    if not (np.isfinite(idf) & (idf > 0)).all():
        raise _unexpected(folder / "idf.npy", "finite numbers above 0")
    lines = _read(folder, "vocabulary.txt", header)
    if lines.count(b"\n") != header["nr_features"]:
        raise _unexpected(folder / "vocabulary.txt", f"{header['nr_features']} lines, one per feature")
    return header["params"], Vocabulary(keys, columns, idf, lambda: lines), header["nr_documents"]


def _header(folder: Path) -> dict[str, Any]:
    path = folder / "params.json"
    header = read_header(path, _FORMAT, _VERSION, of="a fitted TF-IDF", fix=_FIX)
    files = header.get("files")
    if not isinstance(files, dict) or not all(_is_stamp(stamp) for stamp in files.values()):
        raise _unexpected(path, '"files" with the bytes and the crc32 of each file')
    for name, least in (("nr_documents", 0), ("nr_features", 1)):
        if type(header.get(name)) is not int or header[name] < least:
            raise _unexpected(path, f'"{name}", a number from {least} on')
    try:
        header["params"] = TfidfParams.from_json(header.get("params", {}))
    except InputError as error:
        raise InputError(
            f"{path}: {error.problem}", expected=error.expected, received=error.received, fix=error.fix
        ) from None
    return header


def _is_stamp(stamp: Any) -> bool:
    return isinstance(stamp, dict) and all(type(stamp.get(name)) is int for name in ("bytes", "crc32"))


def _read(folder: Path, name: str, header: dict[str, Any]) -> bytes:
    path = folder / name
    stamp = header["files"].get(name)
    if stamp is None:
        raise _unexpected(folder / "params.json", f'"{name}" among its "files"')
    if not path.is_file():
        raise InputError(f"{path} does not exist", fix=_FIX)
    content = path.read_bytes()
    if len(content) != stamp["bytes"]:
        raise InputError(
            f"{path} was cut short" if len(content) < stamp["bytes"] else f"{path} is too long",
            expected=f"{stamp['bytes']:,} bytes",
            received=f"{len(content):,} bytes",
            fix=_FIX,
        )
    if zlib.crc32(content) != stamp["crc32"]:
        raise InputError(
            f"{path} has changed since it was saved with this params.json",
            expected=f"the checksum {stamp['crc32']:08x}",
            received=f"{zlib.crc32(content):08x}",
            fix=_FIX,
        )
    return content


def _read_array(folder: Path, name: str, dtype: type, header: dict[str, Any]) -> np.ndarray:
    expected = f"{header['nr_features']} numbers of type {np.dtype(dtype)}"
    try:
        array = np.load(io.BytesIO(_read(folder, name, header)), allow_pickle=False)
    except (ValueError, EOFError) as error:
        if isinstance(error, InputError):
            raise
        raise _unexpected(folder / name, expected) from None
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != (header["nr_features"],):
        raise _unexpected(folder / name, expected)
    return array


def _unexpected(path: Path, expected: str) -> InputError:
    return InputError(
        f"{path} has unexpected content",
        expected=expected,
        fix=_FIX,
    )
