"""TF-IDF features of a data set, computed once a run for each choice of options."""

import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, overload

from scipy.sparse import csr_matrix, vstack

from xmc_tf.data.text import LazyTexts
from xmc_tf.models.linear.in_memory import fit_tfidf
from xmc_tf.params import TfidfParams
from xmc_tf.tables.store import StoredTexts, TableStore

if TYPE_CHECKING:
    from xmc_tf.features import Tfidf


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


class DataSetFeatures:
    """TF-IDF features of the training and validation documents, and of the test documents.

    Words are counted in training and validation documents, without their labels, so that settings can be compared on
    validation documents and the last training on both needs no other features.

    Args:
        store: the data set.
        threads: number of threads; -1: one per core.
    """

    def __init__(self, store: TableStore, threads: int = -1) -> None:
        self.store, self.threads = store, threads
        self._known: dict[str, tuple[Tfidf, csr_matrix]] = {}

    @property
    def texts(self) -> JoinedTexts | None:
        """The texts of the training documents, followed by those of the validation documents; None: only features."""
        if self.store.nr_features:
            return None
        return JoinedTexts([self.store.texts("train"), self.store.texts("validation")])

    def of(self, params: TfidfParams) -> "tuple[Tfidf | None, csr_matrix]":
        """Return the vectorizer, and the features of the training documents followed by the validation documents."""
        texts = self.texts
        if texts is None:
            return None, self._of_table
        key = json.dumps(params.to_json(), sort_keys=True)
        if key not in self._known:
            tfidf, features = fit_tfidf(texts, params, self.threads)
            assert features.sparse is not None
            # Also by the parameters that contain the language that was found.
            found = json.dumps(tfidf.params.to_json(), sort_keys=True)
            self._known[key] = self._known[found] = tfidf, features.sparse
        return self._known[key]

    def of_test(self, params: TfidfParams) -> csr_matrix:
        """Return the features of the test documents."""
        tfidf = self.of(params)[0]
        if tfidf is None:
            return self.store.features("test")
        return tfidf.transform(self.store.texts("test"), threads=self.threads)

    @cached_property
    def _of_table(self) -> csr_matrix:
        """The features that the table holds instead of texts."""
        return vstack([self.store.features(split) for split in ("train", "validation")], format="csr")
