"""Label names, which serve as training documents and as evidence if a text mentions them."""

from xmc_tf.label_names.label_names import LabelNames
from xmc_tf.label_names.mentions import Mentions
from xmc_tf.label_names.vocabulary import LabelVocabulary, NameDocuments, have_letters, label_vocabulary

__all__ = ["LabelNames", "LabelVocabulary", "Mentions", "NameDocuments", "have_letters", "label_vocabulary"]
