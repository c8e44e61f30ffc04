"""TF-IDF: one TensorFlow graph that serves training and the SavedModel."""

from xmc_tf.common.process.quiet import muted_stderr

with muted_stderr():  # only the first import in a process prints warnings
    import tensorflow  # noqa: F401
    import tensorflow_text  # noqa: F401

from xmc_tf.features.graph import TfidfGraph
from xmc_tf.features.tfidf import Tfidf

__all__ = ["Tfidf", "TfidfGraph"]
