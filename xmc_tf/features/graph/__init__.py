"""TF-IDF as a TensorFlow graph for SavedModels; training and prediction use compiled kernels instead."""

from xmc_tf.common.process.quiet import muted_stderr

with muted_stderr():  # only the first import in a process prints warnings
    import tensorflow  # noqa: F401

from xmc_tf.features.graph.tfidf_graph import TfidfGraph

__all__ = ["TfidfGraph"]
