import logging
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from xmc_tf.common.errors import InputError
from xmc_tf.data.windows import WindowOptions
from xmc_tf.encoder import Encoder, TextTokenizer
from xmc_tf.encoder.network.packed_layout import rounded_up
from xmc_tf.serving.query import Dense, TextWindows, required

_LOG = logging.getLogger(__name__)
WINDOWS_AT_ONCE = 256


class EncoderEmbeddings:
    """Embeddings of texts by an encoder. If the tokenizer cannot run in the graph, callers send token ids."""

    def __init__(self, encoder: Encoder, tokenizer: TextTokenizer, reading: WindowOptions, length: float = 1.0) -> None:
        self.dim, self.length = encoder.dim, length
        padded = tf.TensorSpec([None, None], tf.int32)
        self.inputs: Mapping[str, tf.TensorSpec] = {"token_ids": padded, "token_mask": padded}
        self.tracked: list[Any] = list(encoder.variables)
        self._encoder, self._reading = encoder, reading
        # One graph shared by the signatures, because a server holds several copies of each graph of a model.
        specs = [padded, padded, tf.TensorSpec([None], tf.int64)]
        self._vectors = tf.function(self._unit_vectors, input_signature=specs, autograph=False)
        self._tokenizer: Any = None
        try:
            self._tokenizer = tokenizer.in_graph(reading.max_length, reading.max_windows)
        except InputError as error:
            _LOG.warning("the exported model takes token ids instead of text: %s", error.problem)
        else:
            self.tracked += self._tokenizer.modules_to_save
        self.reads_text = self._tokenizer is not None

    def of_text(self, text: tf.Tensor) -> Dense:
        return self._vectors(*self._tokenizer.windows(text))

    def of_inputs(self, inputs: Mapping[str, tf.Tensor]) -> Dense:
        """Return the embeddings of padded token ids. Rows longer than ``max_length`` are split into windows."""
        ids, mask = inputs["token_ids"], inputs["token_mask"]
        known, widest = self._encoder.vocabulary_size, self._reading.max_length * self._reading.max_windows
        same = tf.reduce_all(tf.equal(tf.shape(ids), tf.shape(mask)))
        with required(
            (tf.shape(ids)[1] <= widest, f"token_ids may have at most {widest} columns"),
            (tf.reduce_all((ids >= 0) & (ids < known)), f"token_ids must lie between 0 and {known - 1}"),
            (same, "token_ids and token_mask must have the same shape"),
        ):
            ids, mask = tf.identity(ids), tf.identity(mask)
        if self._reading.max_windows == 1:
            return self._vectors(ids, mask, tf.range(tf.shape(ids, tf.int64)[0]))
        return self._vectors(*self._unfold(ids, mask))

    def _unfold(self, ids: tf.Tensor, mask: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Split wide rows into windows; return the ids and mask of the windows, and the row of each window."""
        rows, width = tf.unstack(tf.shape(ids))
        longest = self._reading.max_length
        each = tf.maximum((width + longest - 1) // longest, 1)
        window = tf.where(each > 1, longest, width)
        pad, shape = [[0, 0], [0, each * window - width]], [rows * each, window]
        ids, mask = (tf.reshape(tf.pad(one, pad), shape) for one in (ids, mask))
        number = tf.range(rows * each)
        there = tf.where(tf.reduce_any(mask > 0, axis=1) | (number % each == 0))[:, 0]
        return tf.gather(ids, there), tf.gather(mask, there), there // tf.cast(each, tf.int64)

    def _unit_vectors(self, ids: tf.Tensor, mask: tf.Tensor, document: tf.Tensor) -> Dense:
        """Return document embeddings of unit norm, given the documents' windows and the document of each window."""
        if self._reading.max_windows == 1:
            return Dense(_of_length_one(self._of_windows(ids, mask)))
        vectors = self._in_pieces(ids, mask)
        combine = tf.math.segment_max if self._reading.combine == "max" else tf.math.segment_mean
        return Dense(_of_length_one(combine(vectors, document)), TextWindows(_of_length_one(vectors), document))

    def _in_pieces(self, ids: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Compute the embeddings of windows in batches, because long texts have many windows."""
        size = tf.shape(ids)[0]
        pieces = tf.maximum((size + WINDOWS_AT_ONCE - 1) // WINDOWS_AT_ONCE, 1)
        made = tf.TensorArray(tf.float32, pieces, element_shape=[None, self.dim], infer_shape=False)

        def encode(number: tf.Tensor, made: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
            low = number * WINDOWS_AT_ONCE
            high = tf.minimum(low + WINDOWS_AT_ONCE, size)
            return number + 1, made.write(number, self._of_windows(ids[low:high], mask[low:high]))

        _, made = tf.while_loop(lambda number, _: number < pieces, encode, [0, made], parallel_iterations=1)
        return tf.ensure_shape(made.concat(), [None, self.dim])

    def _of_windows(self, ids: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        count = tf.shape(ids)[0]
        # Attention fails without documents, so an artificial one is added and removed again.
        made_up = tf.cast(tf.equal(count, 0), tf.int32)
        width = tf.shape(ids)[1]
        longer = tf.minimum(rounded_up(tf.maximum(width, 1)), self._reading.max_length) - width
        ids = tf.pad(ids, [[0, made_up], [0, longer]], constant_values=self._encoder.pad_id)
        mask = tf.pad(tf.pad(mask, [[0, 0], [0, longer]]), [[0, made_up], [0, 0]], constant_values=1)
        return self._encoder(ids, mask)[:count]


def _of_length_one(vectors: tf.Tensor) -> tf.Tensor:
    return tf.math.divide_no_nan(vectors, tf.norm(vectors, axis=1, keepdims=True))
