"""Controlled vocabularies: the preferred and alternative names of labels."""

from xmc_tf.data.vocabularies.lines import load_label_lines
from xmc_tf.data.vocabularies.skos import Concept, load_vocabulary

__all__ = ["Concept", "load_label_lines", "load_vocabulary"]
