import numpy as np
import tensorflow as tf

from xmc_tf.features.graph.words import Lemmas, ngram_keys, piece_keys, split_words
from xmc_tf.features.vocabulary import Vocabulary
from xmc_tf.params import TfidfParams
from xmc_tf.words.lexicon import Lexicon

_TEXT = tf.TensorSpec([None], tf.string, name="text")
# At least the number of float32 values that a processor handles at once.
_PACKET = 32


class TfidfGraph(tf.Module):
    """TF-IDF features of texts, bit for bit equal to those of `Tfidf.transform`."""

    def __init__(self, params: TfidfParams, vocabulary: Vocabulary, lexicon: Lexicon) -> None:
        super().__init__(name="tfidf")
        self._params = params
        # On the CPU: GPUs have no string kernels, and round sums differently from servers without a GPU.
        with tf.device("CPU:0"):
            # Variables, because a graph with more than 2 GB of constants cannot be saved.
            self.keys = tf.Variable(np.asarray(vocabulary.keys), trainable=False, name="keys")
            self.columns = tf.Variable(np.asarray(vocabulary.columns), trainable=False, name="columns")
            self.idf = tf.Variable(np.asarray(vocabulary.idf), trainable=False, name="idf")
        self._lemmas = Lemmas(lexicon)
        self._nr_features = len(vocabulary)

    @tf.function(input_signature=[_TEXT], autograph=False)
    def __call__(self, text: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return a CSR matrix: int64 row splits [n + 1], int32 features (ascending within a row), float32 weights."""
        with tf.device("CPU:0"):
            params = self._params
            words, splits = split_words(text, params.lowercase, params.min_word_length, params.splits_scripts)
            keys, whole = ngram_keys(self._lemmas(words), splits, params.ngram_max)
            features = tf.reshape(tf.where(whole, self._look_up(keys), self._nr_features), [-1])
            splits_of_features = splits * params.ngram_max
            if params.pieces:
                keys, splits = piece_keys(words, splits, params.pieces)
                both = [
                    tf.RaggedTensor.from_row_splits(features, splits_of_features, validate=False),
                    tf.RaggedTensor.from_row_splits(self._look_up(keys), splits, validate=False),
                ]
                joined = tf.concat(both, axis=1)
                features, splits_of_features = joined.values, joined.row_splits
            rows, ids, counts = self._count(features, splits_of_features)
            weights = self._weigh(rows, ids, counts, tf.size(text, out_type=tf.int64))
            sizes = tf.math.unsorted_segment_sum(tf.ones_like(rows), rows, tf.size(text, out_type=tf.int64))
            return tf.concat([[0], tf.cumsum(sizes)], axis=0), ids, weights

    @tf.function(input_signature=[_TEXT], autograph=False)
    def padded(self, text: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return features and weights [n, m], padded with feature 0 of weight 0, so servers can batch requests."""
        row_splits, ids, weights = self(text)
        with tf.device("CPU:0"):
            rows = tf.RaggedTensor.from_row_splits(ids, row_splits, validate=False)
            return rows.to_tensor(), rows.with_values(weights).to_tensor()

    def information(self, rows: tf.Tensor, features: tf.Tensor, nr_rows: tf.Tensor) -> tf.Tensor:
        """Return how much of each text is known, as `Tfidf.information` does, given its features and their rows."""
        with tf.device("CPU:0"):
            known = tf.maximum(tf.cast(tf.gather(self.idf, features), tf.float64) - 1.0, tf.constant(0, tf.float64))
            return tf.math.unsorted_segment_sum(known, rows, nr_rows)

    def _look_up(self, keys: tf.Tensor) -> tf.Tensor:
        """Return the feature of each n-gram key; unknown keys get the number of features."""
        flat = tf.reshape(keys, [-1])
        known = self.keys.value()  # read once, because each read copies the variable
        place = tf.minimum(tf.searchsorted(known, flat), self._nr_features - 1)
        found = tf.gather(known, place) == flat
        return tf.reshape(tf.where(found, tf.gather(self.columns, place), self._nr_features), tf.shape(keys))

    def _count(self, features: tf.Tensor, splits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return the row, feature and count of each known feature in each row, sorted. ``splits``: where rows begin."""
        # The op fails without rows, so an empty row is appended.
        splits = tf.concat([splits, splits[-1:]], axis=0)
        counted = tf.raw_ops.RaggedCountSparseOutput(
            splits=splits, values=features, weights=tf.zeros([0], tf.float32), maxlength=self._nr_features,
            binary_output=False,
        )  # fmt: skip
        rows, ids = tf.unstack(counted.output_indices, num=2, axis=1)
        return rows, tf.cast(ids, tf.int32), counted.output_values

    def _weigh(self, rows: tf.Tensor, ids: tf.Tensor, counts: tf.Tensor, nr_rows: tf.Tensor) -> tf.Tensor:
        """Return the weights: counts (or 1 + log(count)) times inverse document frequencies, normalized per row."""
        if self._params.sublinear_tf:
            # The op rounds the last few values of a tensor differently, so dummy values are appended.
            counts = 1 + tf.math.log(tf.concat([counts, tf.ones([_PACKET])], axis=0))[:-_PACKET]
        weights = counts * tf.gather(self.idf, ids)
        if self._params.norm == "none":
            return weights
        parts = tf.square(weights) if self._params.norm == "l2" else weights
        sizes = tf.math.unsorted_segment_sum(parts, rows, nr_rows)
        return weights / tf.gather(tf.sqrt(sizes) if self._params.norm == "l2" else sizes, rows)
