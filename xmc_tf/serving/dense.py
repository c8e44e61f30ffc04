"""The interface for dense features of documents, through which an encoder enters the served graph."""

from collections.abc import Mapping
from typing import Any, Protocol

import tensorflow as tf

from xmc_tf.serving.query import Dense


class DenseFeatures(Protocol):
    """Dense features that are appended to the TF-IDF features of each document."""

    dim: int
    length: float  # the norm of a document's dense features in the rankers' training
    reads_text: bool
    inputs: Mapping[str, tf.TensorSpec]  # of callers that do not send text
    tracked: list[Any]  # variables, lookup tables and modules that the SavedModel must contain

    def of_text(self, text: tf.Tensor) -> Dense:
        """Return the features of strings [n]."""
        ...

    def of_inputs(self, inputs: Mapping[str, tf.Tensor]) -> Dense:
        """Return the features of other inputs, as described by ``inputs``."""
        ...


class CallerEmbeddings:
    """Embeddings that the caller computes, for rankers trained on features of another program."""

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
