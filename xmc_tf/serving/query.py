"""The input of a search: sparse features in rows, and dense features if the model has them."""

from typing import NamedTuple, Self

import tensorflow as tf


class TextWindows(NamedTuple):
    """The parts of long documents that an encoder reads at once, as tensors.

    Attributes:
        vectors: float32 [windows, dim]: their embeddings, of length 1.
        document: int64 [windows]: the document of each, ascending; each document has at least one.
    """

    vectors: tf.Tensor
    document: tf.Tensor


class Dense(NamedTuple):
    """The dense features of some documents, as tensors.

    Attributes:
        documents: float32 [documents, dim].
        windows: the windows that they were computed from; None: each document is one window.
    """

    documents: tf.Tensor
    windows: TextWindows | None = None


class Query(NamedTuple):
    """The features of some documents, as tensors.

    Attributes:
        rows: int32 [entries]: the document of each sparse feature, ascending.
        features: int32 [entries]: ascending within a document.
        values: float32 [entries].
        dense: float32 [documents, dense features], or None.
        count: int32: number of documents.
        windows: the windows of the documents, or None: each is one window.
    """

    rows: tf.Tensor
    features: tf.Tensor
    values: tf.Tensor
    dense: tf.Tensor | None
    count: tf.Tensor
    windows: TextWindows | None = None

    @classmethod
    def from_rows(cls, row_splits: tf.Tensor, features: tf.Tensor, values: tf.Tensor, dense: tf.Tensor | None) -> Self:
        """Return a query from the row splits of the documents' features."""
        places = tf.range(tf.size(features, out_type=row_splits.dtype))
        rows = tf.searchsorted(row_splits[1:], places, side="right")
        return cls(rows, features, values, dense, tf.size(row_splits) - 1)

    @classmethod
    def from_padded(cls, features: tf.Tensor, values: tf.Tensor, dense: tf.Tensor | None) -> Self:
        """Return a query from padded rows, where padding has weight 0."""
        there = tf.where(tf.not_equal(values, 0.0))
        return cls(
            tf.cast(there[:, 0], tf.int32), tf.gather_nd(features, there), tf.gather_nd(values, there), dense,
            tf.shape(features)[0],
        )  # fmt: skip
