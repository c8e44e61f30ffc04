"""The folder of a fitted TF-IDF: a JSON file with parameters and checksums, arrays, and a readable vocabulary."""

import json
import mmap
from pathlib import Path
from typing import Any

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.features.vocabulary import Vocabulary
from xmc_tf.params import TfidfParams
from xmc_tf.store.arrays import read_npy
from xmc_tf.store.checksums import record_files, verify
from xmc_tf.store.kinds import read_header
from xmc_tf.store.models import TFIDF, TFIDF_FORMAT
from xmc_tf.store.publishing import publish
from xmc_tf.words.dictionaries import LONGEST_CUT
from xmc_tf.words.lexicon import FIELDS, NO_LEXICON, Lexicon

_VERSION = 2
_FIX = "copy the whole folder again, or fit again"
_ARRAYS = {"keys": np.int64, "columns": np.int32, "idf": np.float32}


def save(folder: str | Path, params: TfidfParams, vocabulary: Vocabulary, nr_documents: int, lexicon: Lexicon) -> None:
    """Write the folder. An older TF-IDF in it is replaced atomically; other files are kept."""
    arrays = {name: getattr(vocabulary, name) for name in _ARRAYS} | (lexicon.to_arrays() if len(lexicon) else {})
    header = {
        "format": TFIDF_FORMAT,
        "version": _VERSION,
        "nr_documents": nr_documents,
        "nr_features": len(vocabulary),
        "params": params.to_json(),
    }
    with publish(folder, TFIDF) as part:
        (part / "vocabulary.txt").write_bytes(vocabulary.lines())
        for name, array in arrays.items():
            np.save(part / f"{name}.npy", array, allow_pickle=False)
        header["files"] = record_files(part, exclude=["params.json"])
        (part / "params.json").write_text(json.dumps(header, indent=1) + "\n", encoding="utf-8")


def load(folder: str | Path) -> tuple[TfidfParams, Vocabulary, int, Lexicon]:
    """Check a folder, and return its parameters, vocabulary, number of documents, and lexicon."""
    folder = Path(folder)
    verify(folder)
    header = _header(folder)
    count = header["nr_features"]
    arrays = {name: _read_array(folder / f"{name}.npy", dtype, count) for name, dtype in _ARRAYS.items()}
    keys, columns, idf = arrays["keys"], arrays["columns"], arrays["idf"]
    if not (keys[1:] > keys[:-1]).all():
        raise _unexpected(folder / "keys.npy", "keys in ascending order, none twice")
    seen = np.zeros(len(columns), bool)
    seen[columns[(columns >= 0) & (columns < len(columns))]] = True
    if not seen.all():
        raise _unexpected(folder / "columns.npy", f"each of the numbers 0 to {len(columns) - 1} once")
    if not (np.isfinite(idf) & (idf > 0)).all():
        raise _unexpected(folder / "idf.npy", "finite numbers above 0")
    with (folder / "vocabulary.txt").open("rb") as file:
        lines = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
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
    arrays = {name: _read_array(folder / f"{name}.npy", dtype) for name, dtype in FIELDS.items()}
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
    header = read_header(path, TFIDF_FORMAT, _VERSION, of="a fitted TF-IDF", fix=_FIX)
    files = header.get("files")
    lexicon = FIELDS if isinstance(files, dict) and "forms.npy" in files else ()
    needed = ["vocabulary.txt", *(f"{name}.npy" for name in (*_ARRAYS, *lexicon))]
    if not isinstance(files, dict) or not files.keys() >= {*needed}:
        raise _unexpected(path, f'"files" with the bytes and the crc32 of {", ".join(needed)}')
    for name, least in (("nr_documents", 0), ("nr_features", 1)):
        if type(header.get(name)) is not int or header[name] < least:
            raise _unexpected(path, f'"{name}", a whole number of at least {least}')
    try:
        header["params"] = TfidfParams.from_json(header.get("params", {}))
    except InputError as error:
        raise error.found_in(path) from None
    return header


def _read_array(path: Path, dtype: type, count: int | None = None) -> np.ndarray:
    """Map a one-dimensional array from a file; ``count`` is its expected length (None: any)."""
    unexpected = _unexpected(path, f"{'' if count is None else f'{count} '}numbers of type {np.dtype(dtype)}")
    try:
        array = read_npy(path)
    except InputError:
        raise unexpected from None
    if array.dtype != dtype or array.ndim != 1 or (count is not None and len(array) != count):
        raise unexpected
    return array


def _unexpected(path: Path, expected: str) -> InputError:
    return InputError(f"{path} has unexpected content", expected=expected, fix=_FIX)
