"""Where dense features of a document come from: the seam through which an encoder enters the served graph."""

from collections.abc import Mapping
from typing import Any, Protocol

import tensorflow as tf


class DenseFeatures(Protocol):
    """What puts a vector beside the TF-IDF features of each document.

    Attributes:
        dim: how many numbers a vector has.
        length: what vectors of length 1 are multiplied by before the rankers see them.
        reads_text: whether it makes vectors of raw text.
        inputs: what a caller gives who brings text in another form: names, shapes and types.
        tracked: what the SavedModel has to hold for it: variables, lookup tables, modules.
    """

    dim: int
    length: float
    reads_text: bool
    inputs: Mapping[str, tf.TensorSpec]
    tracked: list[Any]

    def of_text(self, text: tf.Tensor) -> tf.Tensor:
        """Vectors of texts: strings [n] to float32 [n, dim]."""
        ...

    def of_inputs(self, inputs: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Vectors of what ``inputs`` describes: float32 [n, dim]."""
        ...


class GivenVectors:
    """Vectors that the caller makes: for rankers that were trained on features of another program.

    Args:
        dim: how many numbers each has.
    """

    length = 1.0
    reads_text = False

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.inputs: Mapping[str, tf.TensorSpec] = {"vectors": tf.TensorSpec([None, dim], tf.float32)}
        self.tracked: list[Any] = []

    def of_text(self, text: tf.Tensor) -> tf.Tensor:
        """None: there is nothing that reads text."""
        raise NotImplementedError("these embeddings are computed by the caller")

    def of_inputs(self, inputs: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """The vectors as they came."""
        return inputs["vectors"]
