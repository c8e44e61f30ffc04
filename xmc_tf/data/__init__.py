"""Reading and checking of the user's inputs: texts, matrices and label names."""

from xmc_tf.data.batches import epoch_batches, padding_share, share_of_batch
from xmc_tf.data.checks import (
    check_features,
    check_labels,
    check_pair,
    check_prediction_input,
    check_training_input,
    check_validation_input,
)
from xmc_tf.data.feature_files import load_features
from xmc_tf.data.features import Features, as_features
from xmc_tf.data.label_choice import chosen_labels, load_label_choice
from xmc_tf.data.labelled_text import LabelledText
from xmc_tf.data.labels import load_names
from xmc_tf.data.matrices import load_matrix, save_matrix
from xmc_tf.data.output_names import embedding_path, prediction_path
from xmc_tf.data.text import JoinedTexts, TextFile, Texts
from xmc_tf.data.token_files import TokenWriter
from xmc_tf.data.tokens import TokenStore

__all__ = [
    "Features",
    "JoinedTexts",
    "LabelledText",
    "TextFile",
    "Texts",
    "TokenStore",
    "TokenWriter",
    "as_features",
    "check_features",
    "check_labels",
    "check_pair",
    "check_prediction_input",
    "check_training_input",
    "check_validation_input",
    "chosen_labels",
    "embedding_path",
    "epoch_batches",
    "load_features",
    "load_label_choice",
    "load_matrix",
    "load_names",
    "padding_share",
    "prediction_path",
    "save_matrix",
    "share_of_batch",
]
