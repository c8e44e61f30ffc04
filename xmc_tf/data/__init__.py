"""Read and check the user's inputs: texts, feature and label matrices, and label names."""

# ruff: noqa: F401  other packages import these names from here
from xmc_tf.data.batches import epoch_batches, share_of_batch
from xmc_tf.data.checks import (
    check_features,
    check_labels,
    check_pair,
    check_prediction_input,
    check_training_input,
    check_validation_input,
)
from xmc_tf.data.features import Features, as_features
from xmc_tf.data.labelled_text import LabelledText
from xmc_tf.data.labels import chosen_labels, load_label_choice, load_names
from xmc_tf.data.matrices import embedding_path, load_features, load_matrix, prediction_path, save_matrix
from xmc_tf.data.text import JoinedTexts, TextFile, Texts, kinds_of_texts, without_names
from xmc_tf.data.tokens import TokenStore, TokenWriter
