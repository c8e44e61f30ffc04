"""The input of a search: sparse features in rows, and dense features if the model has them."""

from typing import NamedTuple, Self

import tensorflow as tf


class TextWindows(NamedTuple):
    """The windows of long documents, as tensors."""

    vectors: tf.Tensor  # float32 [windows, dim]: embeddings of length 1
    document: tf.Tensor  # int64 [windows], ascending; each document has at least one


class Dense(NamedTuple):
    """The dense features of some documents, as tensors."""

    documents: tf.Tensor  # float32 [documents, dim]
    windows: TextWindows | None = None  # None: each document is one window


class Query(NamedTuple):
    """The features of some documents, as tensors."""

    rows: tf.Tensor  # int32 [entries], ascending: the document of each sparse feature
    features: tf.Tensor  # int32 [entries], ascending within a document
    values: tf.Tensor  # float32 [entries]
    dense: tf.Tensor | None  # float32 [documents, dense features]
    count: tf.Tensor  # int32: number of documents
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
