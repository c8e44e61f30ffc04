"""TF-IDF: one TensorFlow graph that serves training and the SavedModel."""

from xmc_tf.features.graph import TfidfGraph
from xmc_tf.features.tfidf import Tfidf

__all__ = ["Tfidf", "TfidfGraph"]
