"""The similarity of texts and names as TensorFlow ops, equal to ``xmc_tf.fusion.similarity``."""

import numpy as np
import tensorflow as tf

from xmc_tf.fusion.similarity import LOWEST, MOST, Similarity


class NameSimilarity(tf.Module):
    """The similarity of documents and names of labels without training documents."""

    def __init__(self, similarity: Similarity) -> None:
        super().__init__(name="name_similarity")
        with tf.device("CPU:0"):
            self.labels = tf.Variable(similarity.labels.astype(np.int32), trainable=False, name="similar_labels")
            self.vectors = tf.Variable(similarity.vectors, trainable=False, name="name_embeddings")
        self._most = min(MOST, len(similarity.labels))
        self._least, self._scale = similarity.least, similarity.scale

    def candidates(self, documents: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return pairs of a document (int64) and a label similar to it (int32), for documents of length 1."""
        best = tf.math.top_k(tf.matmul(documents, self.vectors, transpose_b=True), k=self._most)
        there = tf.where(best.values >= self._least)
        return there[:, 0], tf.gather(self.labels, tf.gather_nd(best.indices, there))

    def of_pairs(self, documents: tf.Tensor, rows: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Return the float64 similarity of pairs of document and label; 0 for labels with training documents."""
        known = self.labels.value()
        place = tf.minimum(tf.searchsorted(known, labels), tf.size(known) - 1)
        same = tf.gather(known, place) == labels
        some = tf.where(same)
        left, right = tf.gather(documents, rows[same]), tf.gather(self.vectors, place[same])
        cosine = tf.cast(tf.reduce_sum(left * right, axis=1), tf.float64)
        value = tf.maximum((cosine - self._least) / self._scale, tf.constant(LOWEST, tf.float64))
        return tf.scatter_nd(some, value, tf.shape(labels, tf.int64))
