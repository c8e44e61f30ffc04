"""TF-IDF features of a data set, stored in its database: a second run reads no text again."""

import logging
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, overload

from scipy.sparse import csr_matrix, vstack

from xmc_tf.data.text import LazyTexts
from xmc_tf.models.linear.training import fit_tfidf
from xmc_tf.params import TfidfParams
from xmc_tf.tables.store import StoredTexts, TableStore
from xmc_tf.tables.stored.arrays import (
    content_matrix,
    entry_key,
    folder_content,
    get_entry,
    matrix_content,
    put_entry,
    write_folder,
)

if TYPE_CHECKING:
    from xmc_tf.features import Tfidf

_LOG = logging.getLogger(__name__)


class JoinedTexts(LazyTexts):
    """The texts of several splits, one after the other, read when they are used.

    Args:
        parts: the texts of each split.
    """

    def __init__(self, parts: Sequence[StoredTexts]) -> None:
        self.parts = list(parts)

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> "JoinedTexts": ...

    def __getitem__(self, index: int | slice) -> "str | JoinedTexts":
        if isinstance(index, slice):
            first, last, step = index.indices(len(self))
            if step != 1:
                raise ValueError("the step of a slice of texts must be 1")
            begins = accumulate(map(len, self.parts), initial=0)
            return JoinedTexts(
                [part[max(first - at, 0) : max(last - at, 0)] for part, at in zip(self.parts, begins, strict=False)]
            )
        for part in self.parts:
            if index < len(part):
                return part[index]
            index -= len(part)
        raise IndexError("there is no such document")

    def __iter__(self) -> Iterator[str]:
        for part in self.parts:
            yield from part


class StoredFeatures:
    """TF-IDF features of the training and validation documents, and of the test documents.

    Words are counted in training and validation documents, without their labels, so that settings can be compared on
    validation documents and the last training on both needs no other features.

    Args:
        store: the data set, open for writing.
        threads: number of threads; -1: one per core.
    """

    def __init__(self, store: TableStore, threads: int = -1) -> None:
        self.store, self.threads = store, threads
        self.computed = 0
        """Number of texts that were split into words because their features were not stored."""
        self._known: dict[str, tuple[Tfidf, csr_matrix]] = {}

    @property
    def texts(self) -> JoinedTexts | None:
        """The texts of the training documents, followed by those of the validation documents; None: only features."""
        if self.store.nr_features:
            return None
        return JoinedTexts([self.store.texts("train"), self.store.texts("validation")])

    def of(self, params: TfidfParams) -> "tuple[Tfidf | None, csr_matrix]":
        """Return the vectorizer, and the features of the training documents followed by the validation documents."""
        if self.store.nr_features:
            return None, self._given()
        key = self._key(params, "train+validation")
        if key not in self._known:
            found = self._stored(key) or self._compute(key, params)
            # Also by the parameters that contain the language that was found.
            self._known[key] = self._known[self._key(found[0].params, "train+validation")] = found
        return self._known[key]

    def of_test(self, params: TfidfParams) -> csr_matrix:
        """Return the features of the test documents."""
        if self.store.nr_features:
            return self.store.features("test")
        tfidf = self.of(params)[0]
        assert tfidf is not None  # there are texts
        key = self._key(tfidf.params, "test")
        if (content := get_entry(self.store, key)) is not None:
            return content_matrix(content)
        texts = self.store.texts("test")
        X = tfidf.transform(texts, threads=self.threads)
        self.computed += len(texts)
        put_entry(self.store, key, matrix_content(X))
        return X

    def _given(self) -> csr_matrix:
        """Return the features that the table holds instead of texts."""
        if not hasattr(self, "_table_features"):
            parts = [self.store.features(split) for split in ("train", "validation")]
            self._table_features = vstack(parts, format="csr")
        return self._table_features

    def _key(self, params: TfidfParams, documents: str) -> str:
        source, columns, splits = (self.store.meta(key) for key in ("source", "columns", "splits"))
        return entry_key(
            tfidf=params.to_json(), documents=documents, source=source, columns=columns, splits=splits, version=1
        )

    def _stored(self, key: str) -> "tuple[Tfidf, csr_matrix] | None":
        content = get_entry(self.store, key)
        if content is None:
            return None
        from xmc_tf.features import Tfidf

        with TemporaryDirectory() as folder:
            write_folder(content, Path(folder))
            tfidf = Tfidf.load(folder)
        X = content_matrix(content)
        _LOG.info("features of %s documents read from %s", f"{X.shape[0]:,}", self.store.path)
        return tfidf, X

    def _compute(self, key: str, params: TfidfParams) -> "tuple[Tfidf, csr_matrix]":
        texts = self.texts
        assert texts is not None  # else the table holds features
        tfidf, features = fit_tfidf(texts, params, self.threads)
        self.computed += len(texts)
        X = features.sparse
        assert X is not None
        with TemporaryDirectory() as folder:
            tfidf.save(Path(folder) / "features")
            put_entry(self.store, key, {**folder_content(Path(folder) / "features"), **matrix_content(X)})
        return tfidf, X
