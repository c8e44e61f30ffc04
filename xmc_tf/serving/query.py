"""The input of a search: sparse features by row, and dense features if the model uses them."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, Self

import tensorflow as tf


class TextWindows(NamedTuple):
    """The windows of long documents, as tensors."""

    vectors: tf.Tensor  # float32 [windows, dim]: embeddings of unit norm
    document: tf.Tensor  # int64 [windows], ascending; each document has at least one


class Dense(NamedTuple):
    documents: tf.Tensor  # float32 [documents, dim]
    windows: TextWindows | None = None  # None: each document is one window


class Query(NamedTuple):
    rows: tf.Tensor  # int32 [entries], ascending: the document of each sparse feature
    features: tf.Tensor  # int32 [entries], ascending within a document
    values: tf.Tensor  # float32 [entries]
    dense: tf.Tensor | None  # float32 [documents, dense features]
    count: tf.Tensor  # int32: number of documents
    windows: TextWindows | None = None

    @classmethod
    def from_rows(cls, row_splits: tf.Tensor, features: tf.Tensor, values: tf.Tensor, dense: tf.Tensor | None) -> Self:
        """Return a query, given the row splits of the documents' sparse features."""
        places = tf.range(tf.size(features, out_type=row_splits.dtype))
        rows = tf.searchsorted(row_splits[1:], places, side="right")
        return cls(rows, features, values, dense, tf.size(row_splits) - 1)

    @classmethod
    def from_padded(cls, features: tf.Tensor, values: tf.Tensor, dense: tf.Tensor | None) -> Self:
        """Return a query, given padded rows in which padding has weight 0."""
        there = tf.where(tf.not_equal(values, 0.0))
        rows, count = tf.cast(there[:, 0], tf.int32), tf.shape(features)[0]
        return cls(rows, tf.gather_nd(features, there), tf.gather_nd(values, there), dense, count)


class DenseFeatures(Protocol):
    """The interface of dense features, which are appended to each document's TF-IDF features."""

    dim: int
    length: float  # the norm of a document's dense features in the rankers' training
    reads_text: bool
    inputs: Mapping[str, tf.TensorSpec]  # of callers that do not send text
    tracked: list[Any]  # variables, lookup tables and modules that the SavedModel must contain

    def of_text(self, text: tf.Tensor) -> Dense: ...

    def of_inputs(self, inputs: Mapping[str, tf.Tensor]) -> Dense: ...


class CallerEmbeddings:
    """Embeddings from the caller, for rankers that were trained on another program's features."""

    length = 1.0
    reads_text = False

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.inputs: Mapping[str, tf.TensorSpec] = {"vectors": tf.TensorSpec([None, dim], tf.float32)}
        self.tracked: list[Any] = []

    def of_text(self, text: tf.Tensor) -> Dense:
        raise NotImplementedError("these embeddings are computed by the caller")

    def of_inputs(self, inputs: Mapping[str, tf.Tensor]) -> Dense:
        return Dense(inputs["vectors"])


def required(*checks: tuple[tf.Tensor, str]) -> Any:
    """Return a context for ops that require these conditions. If one is false, the request fails with its message."""
    return tf.control_dependencies([
        tf.raw_ops.Assert(condition=condition, data=[tf.constant(message)]) for condition, message in checks
    ])  # fmt: skip
