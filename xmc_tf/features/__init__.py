"""TF-IDF: compiled kernels for training and prediction, and a TensorFlow graph with equal results for SavedModels."""

from xmc_tf.features.tfidf import Tfidf

__all__ = ["Tfidf"]
