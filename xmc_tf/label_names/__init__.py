"""Names of labels as evidence: where they occur in texts, and what an occurrence is worth."""

from xmc_tf.label_names.label_names import LabelNames
from xmc_tf.label_names.vocabulary import LabelVocabulary, have_letters, label_vocabulary

__all__ = ["LabelNames", "LabelVocabulary", "have_letters", "label_vocabulary"]
