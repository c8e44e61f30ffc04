"""The folder of a fitted TF-IDF: a JSON file with parameters and checksums, arrays, and a readable vocabulary."""

import io
import json
import math
import mmap
from pathlib import Path
from typing import Any

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.headers import read_header
from xmc_tf.common.folders.checksums import Records, check_content, content_record, is_content_record, verified
from xmc_tf.common.folders.model_parts import TFIDF, TFIDF_FORMAT
from xmc_tf.common.folders.placing import placed_folder
from xmc_tf.data.npz.reading import read_head
from xmc_tf.features.vocabulary import Vocabulary
from xmc_tf.params import TfidfParams
from xmc_tf.words.dictionaries import LONGEST_CUT
from xmc_tf.words.lexicon import FIELDS, NO_LEXICON, Lexicon

_VERSION = 2
_LONGEST_HEAD = 1 << 12  # bytes of an array's head
_FIX = "copy the whole folder again, or fit again"
_ARRAYS = {"keys": np.int64, "columns": np.int32, "idf": np.float32}


def save(folder: str | Path, params: TfidfParams, vocabulary: Vocabulary, nr_documents: int, lexicon: Lexicon) -> None:
    """Write the folder. An older TF-IDF in it is replaced atomically; other files are kept."""
    contents = {"vocabulary.txt": vocabulary.lines()}
    arrays = {name: getattr(vocabulary, name) for name in _ARRAYS} | (lexicon.to_arrays() if len(lexicon) else {})
    for name, array in arrays.items():
        buffer = io.BytesIO()
        np.save(buffer, array, allow_pickle=False)
        contents[f"{name}.npy"] = buffer.getvalue()
    header = {
        "format": TFIDF_FORMAT,
        "version": _VERSION,
        "nr_documents": nr_documents,
        "nr_features": len(vocabulary),
        "params": params.to_json(),
        "files": {name: content_record(content) for name, content in contents.items()},
    }
    with placed_folder(folder, TFIDF) as part:
        for name, content in contents.items():
            (part / name).write_bytes(content)
        (part / "params.json").write_text(json.dumps(header, indent=1) + "\n", encoding="utf-8")


def load(folder: str | Path) -> tuple[TfidfParams, Vocabulary, int, Lexicon]:
    """Check a folder, and return its parameters, vocabulary, number of documents, and lexicon."""
    folder = Path(folder)
    records = Records.around(folder)
    with verified(folder, records=records):
        # Files that are compared with the records of a model are not compared again.
        compared = set() if records is None else {Path(name).name for name in records.files}
        header = _header(folder) | {"compared": compared}
        count = header["nr_features"]
        arrays = {name: _read_array(folder, f"{name}.npy", dtype, header, count) for name, dtype in _ARRAYS.items()}
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
        if bytes(lines).count(b"\n") != header["nr_features"]:
            raise _unexpected(folder / "vocabulary.txt", f"{header['nr_features']} lines, one per feature")
        vocabulary = Vocabulary(keys, columns, idf, lambda: bytes(lines))
        return header["params"], vocabulary, header["nr_documents"], _lexicon(folder, header)


def fitted_params(folder: str | Path) -> TfidfParams:
    """Return the parameters in a folder written by `save`, including the detected language."""
    params: TfidfParams = _header(Path(folder))["params"]
    return params


def _lexicon(folder: Path, header: dict[str, Any]) -> Lexicon:
    if "forms.npy" not in header["files"]:
        return NO_LEXICON
    arrays = {name: _read_array(folder, f"{name}.npy", dtype, header) for name, dtype in FIELDS.items()}
    forms, lemma_of, ends = arrays["forms"], arrays["lemma_of"], arrays["added_ends"]
    if not (forms[1:] > forms[:-1]).all():
        raise _unexpected(folder / "forms.npy", "keys in ascending order, none twice")
    known = (lemma_of >= 0) & (lemma_of < len(arrays["lemma_keys"]))
    if len(lemma_of) != len(forms) or not known.all():
        raise _unexpected(folder / "lemma_of.npy", f"for each of {len(forms):,} forms a lemma of lemma_keys.npy")
    endings, cuts = arrays["endings"], arrays["cuts"]
    if not len(endings) == len(cuts) == len(ends) or not (endings[1:] > endings[:-1]).all():
        raise _unexpected(folder / "endings.npy", "as many keys as there are cuts and ends, ascending, none twice")
    if not ((cuts >= 0) & (cuts <= LONGEST_CUT)).all():
        raise _unexpected(folder / "cuts.npy", f"numbers from 0 to {LONGEST_CUT}")
    if (ends[1:] < ends[:-1]).any() or (len(ends) and (ends[0] < 0 or ends[-1] != len(arrays["added"]))):
        raise _unexpected(folder / "added_ends.npy", "the ends of the parts of added.npy")
    return Lexicon.from_arrays(arrays)


def _header(folder: Path) -> dict[str, Any]:
    path = folder / "params.json"
    header = read_header(path, TFIDF_FORMAT, 1, _VERSION, of="a fitted TF-IDF", fix=_FIX)
    files = header.get("files")
    if not isinstance(files, dict) or not all(is_content_record(stamp) for stamp in files.values()):
        raise _unexpected(path, '"files" with the bytes and the crc32 of each file')
    for name, least in (("nr_documents", 0), ("nr_features", 1)):
        if type(header.get(name)) is not int or header[name] < least:
            raise _unexpected(path, f'"{name}", a whole number of at least {least}')
    try:
        header["params"] = TfidfParams.of_header(header)
    except InputError as error:
        raise error.found_in(path) from None
    return header


def _read(folder: Path, name: str, header: dict[str, Any]) -> bytes | mmap.mmap:
    """Map a file into memory, and verify its size and, unless the model's records list the file, its checksum."""
    path = folder / name
    stamp = header["files"].get(name)
    if stamp is None:
        raise _unexpected(folder / "params.json", f'"{name}" among its "files"')
    check_content(path, stamp, _FIX, all_bytes=name not in header["compared"])
    if not stamp["bytes"]:
        return b""
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _read_array(folder: Path, name: str, dtype: type, header: dict[str, Any], count: int | None = None) -> np.ndarray:
    """Map a one-dimensional array from a file; ``count`` is its expected length (None: any)."""
    expected = f"{'' if count is None else f'{count} '}numbers of type {np.dtype(dtype)}"
    content = _read(folder, name, header)
    try:
        head = read_head(io.BytesIO(content[:_LONGEST_HEAD]), str(folder / name))
        array = np.frombuffer(content, head.dtype, math.prod(head.shape), head.length)
    except ValueError:  # an InputError is one
        raise _unexpected(folder / name, expected) from None
    if array.dtype != dtype or len(head.shape) != 1 or (count is not None and len(array) != count):
        raise _unexpected(folder / name, expected)
    return array


def _unexpected(path: Path, expected: str) -> InputError:
    return InputError(f"{path} has unexpected content", expected=expected, fix=_FIX)
