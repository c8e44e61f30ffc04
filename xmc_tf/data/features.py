from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_matrix, issparse

from xmc_tf.common.errors import InputError
from xmc_tf.data.in_memory import columns_of, is_frame, listed


@dataclass(frozen=True, eq=False)
class Features:
    """The features of documents: sparse columns (CSR, sorted indices), then dense ones (C-contiguous), all float32."""

    sparse: csr_matrix | None = None
    dense: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.sparse is None and self.dense is None:
            raise InputError(
                "there are no features", expected="a sparse matrix, a dense one, or both", received="neither"
            )
        if self.sparse is not None and self.dense is not None and self.sparse.shape[0] != self.dense.shape[0]:
            raise InputError(
                "the sparse and the dense features have different numbers of documents",
                expected="the same number of rows in both",
                received=f"{self.sparse.shape[0]:,} sparse rows and {self.dense.shape[0]:,} dense rows",
                fix="compute both from the same texts",
            )

    @property
    def nr_rows(self) -> int:
        part = self.sparse if self.sparse is not None else self.dense
        return int(part.shape[0])  # type: ignore[union-attr]  # one of the two is there

    @property
    def nr_sparse(self) -> int:
        return 0 if self.sparse is None else int(self.sparse.shape[1])

    @property
    def nr_dense(self) -> int:
        return 0 if self.dense is None else int(self.dense.shape[1])

    @property
    def nr_features(self) -> int:
        return self.nr_sparse + self.nr_dense

    @property
    def shape(self) -> tuple[int, int]:
        return self.nr_rows, self.nr_features

    def rows(self, index: np.ndarray | slice) -> Self:
        """Return the documents selected by ``index`` (positions, a mask or a slice), in the order of the index."""
        return type(self)(
            sparse=None if self.sparse is None else self.sparse[index],
            dense=None if self.dense is None else np.ascontiguousarray(self.dense[index]),
        )


def as_features(features: Any) -> Features:
    """Convert a matrix, lists, a DataFrame or a pair (sparse, dense) to `Features`; copy the data only if necessary."""
    if isinstance(features, Features):
        return features
    if is_frame(features):
        features = np.array([listed(column) for column in columns_of(features)[1]]).T
    elif isinstance(features, list | tuple) and all(np.ndim(row) == 1 and not issparse(row) for row in features):
        features = np.asarray(features)
    if isinstance(features, tuple | list) and len(features) == 2:
        sparse, dense = features
        return Features(_as_sparse(sparse), _as_dense(dense))
    if issparse(features):
        return Features(sparse=_as_sparse(features))
    return Features(dense=_as_dense(features))


def _as_sparse(part: Any) -> csr_matrix | None:
    if part is None:
        return None
    if not issparse(part):
        raise InputError(
            "the sparse features are not a sparse matrix",
            expected="a scipy sparse matrix",
            received=type(part).__name__,
            fix="pass dense features as the second of the pair (sparse, dense)",
        )
    as_csr = part if isinstance(part, csr_matrix) else csr_matrix(part)
    if as_csr.dtype != np.float32:
        as_csr = as_csr.astype(np.float32)
    if not as_csr.has_canonical_format:
        as_csr = as_csr.copy()  # the caller's arrays may be shared with it, and may be mapped read-only
        as_csr.sum_duplicates()
    return as_csr


def _as_dense(part: Any) -> np.ndarray | None:
    if part is None:
        return None
    if issparse(part) or not isinstance(part, np.ndarray) or part.ndim != 2 or part.dtype.kind not in "fiub":
        received = f"an array of {part.ndim} dimensions, {part.dtype}" if isinstance(part, np.ndarray) else ""
        raise InputError(
            "the dense features are not a matrix of numbers",
            expected="a two-dimensional numpy array (documents × features)",
            received=received or type(part).__name__,
        )
    return np.ascontiguousarray(part, dtype=np.float32)
