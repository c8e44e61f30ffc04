"""Read texts from the data types that are common in Python."""

import logging
import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from scipy.sparse import issparse

from xmc_tf.common.errors import InputError
from xmc_tf.data.features import Features
from xmc_tf.data.in_memory import is_listing, listed, plain
from xmc_tf.data.text import LazyTexts, TextFile, Texts

_LOG = logging.getLogger(__name__)
_TEXTS = (str, bytes)


def read_texts(documents: Any, name: str = "texts", *, training: bool = False) -> Texts | None:
    """Return the texts of documents, or None if the input holds features. A missing text (None, NaN) becomes ""."""
    if isinstance(documents, TextFile | LazyTexts):
        return documents
    if isinstance(documents, Features) or issparse(documents):
        return None
    if isinstance(documents, os.PathLike) or (training and isinstance(documents, _TEXTS)):
        raise InputError(
            f"{name} is a {'path' if isinstance(documents, os.PathLike) else 'single text'}",
            expected="a list of texts, a Series, a DataFrame or a TextFile",
            received=repr(documents)[:80],
            fix="TextFile(path) for a file with one text per line, pandas.read_csv(path) for a table",
        )
    if isinstance(documents, _TEXTS):
        return [documents]  # type: ignore[return-value]  # of either type
    values = documents
    if hasattr(values, "__array__") and not hasattr(values, "__iter__"):
        values = np.asarray(values)
    if isinstance(values, np.ndarray):
        if values.dtype.kind not in "OUST":
            return None
        if values.ndim == 2 and values.shape[1] == 1:
            values = values.ravel()
        if values.ndim != 1:
            if values.dtype.kind != "O" or any(isinstance(value, _TEXTS) for value in values.flat):
                raise InputError(
                    f"{name} is a table of texts",
                    expected="one column of texts",
                    received=f"an array of shape {values.shape}",
                    fix=f"{name}[:, 0] for the first column",
                )
            return None
    values = listed(values)
    if isinstance(values, set | frozenset):
        raise InputError(f"{name} is a set, which has no order", expected="a list of texts", fix="pass a list")
    if not isinstance(values, Iterable) or isinstance(values, Mapping):
        raise InputError(
            f"{name} is neither texts nor features", expected="a list of texts, a Series, a DataFrame or a matrix",
            received=type(values).__name__,
        )  # fmt: skip
    values = values if isinstance(values, list) else list(values)
    if set(map(type, values)) <= set(_TEXTS):
        return values
    values = [plain(value) for value in values]
    present = [value for value in values if value is not None]
    # Lists of words, and numbers, are neither texts nor features: _filled raises an error for them.
    words = present and is_listing(present[0]) and any(isinstance(word, str) for word in present[0])
    numbers = present and isinstance(present[0], int | float)
    if present and not words and not numbers and not any(isinstance(value, _TEXTS) for value in present):
        return None
    return _filled(values, name)


def _filled(values: list[Any], name: str) -> list[Any]:
    """Return the texts, with "" for missing ones. Raise InputError if another value is not a text."""
    missing = [row for row, value in enumerate(values) if value is None]
    if missing:
        _LOG.warning(
            "%s: %s of %s are missing and count as empty; the first is document %s", name, f"{len(missing):,}",
            f"{len(values):,}", f"{missing[0]:,}",
        )  # fmt: skip
    for row, value in enumerate(values):
        if value is not None and not isinstance(value, _TEXTS):
            words = is_listing(value) and all(isinstance(word, str) for word in value)
            raise InputError(
                f"{name}: document {row:,} is not a text",
                expected="text (str) for every document",
                received=f"{type(value).__name__}: {value!r}"[:80],
                fix='join each list of words: " ".join(words)' if words else "convert each document: str(text)",
            )
    return ["" if value is None else value for value in values]
