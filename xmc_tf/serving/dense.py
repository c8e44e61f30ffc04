"""The interface for dense features of documents, through which an encoder enters the served graph."""

from collections.abc import Mapping
from typing import Any, Protocol

import tensorflow as tf

from xmc_tf.serving.query import Dense


class DenseFeatures(Protocol):
    """Dense features that are appended to the TF-IDF features of each document.

    Attributes:
        dim: number of dense features.
        length: the norm of a document's dense features as the rankers expect it.
        reads_text: whether it computes the features from raw text.
        inputs: the inputs of callers that send something other than text: names, shapes and types.
        tracked: variables, lookup tables and modules that the SavedModel must contain.
    """

    dim: int
    length: float
    reads_text: bool
    inputs: Mapping[str, tf.TensorSpec]
    tracked: list[Any]

    def of_text(self, text: tf.Tensor) -> Dense:
        """Return the features of texts: strings [n] to float32 [n, dim]."""
        ...

    def of_inputs(self, inputs: Mapping[str, tf.Tensor]) -> Dense:
        """Return the features of other inputs, as described by ``inputs``: float32 [n, dim]."""
        ...


class CallerEmbeddings:
    """Embeddings computed by the caller, for rankers trained on features of another program.

    Args:
        dim: length of an embedding.
    """

    length = 1.0
    reads_text = False

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.inputs: Mapping[str, tf.TensorSpec] = {"vectors": tf.TensorSpec([None, dim], tf.float32)}
        self.tracked: list[Any] = []

    def of_text(self, text: tf.Tensor) -> Dense:
        """Raise an error, because only the caller can compute these embeddings."""
        raise NotImplementedError("these embeddings are computed by the caller")

    def of_inputs(self, inputs: Mapping[str, tf.Tensor]) -> Dense:
        """Return the caller's embeddings."""
        return Dense(inputs["vectors"])
