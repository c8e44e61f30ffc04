"""TF-IDF: compiled loops for training and prediction, and the same as a TensorFlow graph for the SavedModel."""

from xmc_tf.features.tfidf import Tfidf

__all__ = ["Tfidf"]
