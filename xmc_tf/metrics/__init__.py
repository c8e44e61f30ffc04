"""Evaluate predictions: ranking metrics, propensities, buckets of label frequency, ensembles and text tables."""

from xmc_tf.metrics.ensemble import ENSEMBLES, ensemble
from xmc_tf.metrics.evaluation import evaluate, inverse_propensity, pecos_lines, precision_and_recall
from xmc_tf.metrics.measures import MEASURES, FrequencyBuckets, Measures, measure
from xmc_tf.metrics.ranking import LabelCounts, as_truth, count_labels, mark_hits, top_labels
from xmc_tf.metrics.table import format_table, percent

__all__ = [
    "ENSEMBLES", "MEASURES", "FrequencyBuckets", "LabelCounts", "Measures", "as_truth", "count_labels", "ensemble",
    "evaluate", "format_table", "inverse_propensity", "mark_hits", "measure", "pecos_lines", "percent",
    "precision_and_recall", "top_labels",
]  # fmt: skip
