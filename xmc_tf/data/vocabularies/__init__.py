"""Controlled vocabularies: preferred and alternative names of labels, and their broader terms."""

from xmc_tf.data.vocabularies.hierarchy import LabelHierarchy
from xmc_tf.data.vocabularies.lines import LabelLines, load_hierarchy, load_label_lines
from xmc_tf.data.vocabularies.skos import Concept, load_vocabulary

__all__ = ["Concept", "LabelHierarchy", "LabelLines", "load_hierarchy", "load_label_lines", "load_vocabulary"]
