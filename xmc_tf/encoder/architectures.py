"""The differences between architectures: class, inputs, default pooling, maximum length."""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from xmc_tf.common.errors import InputError

_NO_LIMIT = 1 << 20


class Architecture(NamedTuple):
    """An architecture of transformers.

    Attributes:
        tf_class: name of its class in transformers.
        pooling: the default pooling; "pooler" only if the files have weights for it.
        dropouts: names of the dropout rates in its configuration: first the one between layers, then those inside.
        max_length: returns the maximum number of tokens of a document, given the configuration.
        inputs: returns the inputs besides ids and mask.
        half_precision: whether its class can compute in half precision; if not, it ignores the policy.
        branches_on_tensors: whether AutoGraph must convert its code when it is traced.
    """

    tf_class: str
    pooling: str
    dropouts: tuple[str, ...]
    max_length: Callable[[Any], int]
    inputs: Callable[[tf.Tensor], dict[str, tf.Tensor]]
    half_precision: bool = True
    branches_on_tensors: bool = False


def architecture_of(config: Any) -> Architecture:
    """Return the architecture of a configuration of transformers.

    Raises:
        InputError: the architecture is not supported.
    """
    if config.model_type not in ARCHITECTURES:
        raise InputError(
            f"the encoder has an unsupported architecture: {config.model_type or 'none named'}",
            expected=", ".join(ARCHITECTURES),
            fix="choose an encoder of a supported architecture",
        )
    return ARCHITECTURES[config.model_type]


def _no_inputs(mask: tf.Tensor) -> dict[str, tf.Tensor]:
    return {}


def _one_segment(mask: tf.Tensor) -> dict[str, tf.Tensor]:
    return {"token_type_ids": tf.zeros_like(mask)}


def _xlnet_segments(mask: tf.Tensor) -> dict[str, tf.Tensor]:
    """Return segment ids: the classification token is the last and has its own segment, as has padding."""
    place = tf.range(tf.shape(mask)[1])[None, :]
    last = place == tf.reduce_sum(mask, axis=1, keepdims=True) - 1
    return {"token_type_ids": tf.where(mask == 0, 3, tf.where(last, 2, 0))}


def _positions(config: Any) -> int:
    return int(config.max_position_embeddings)


def _positions_behind_padding(config: Any) -> int:
    """Return the maximum length where positions are counted from the padding id on."""
    return int(config.max_position_embeddings) - int(config.pad_token_id or 0) - 1


def _mpnet_positions(config: Any) -> int:
    return int(config.max_position_embeddings) - 2  # its padding id is always 1, regardless of the configuration


def _unlimited(config: Any) -> int:
    return _NO_LIMIT


_DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob")

ARCHITECTURES = {
    "bert": Architecture("TFBertModel", "pooler", _DROPOUTS, _positions, _one_segment),
    "roberta": Architecture("TFRobertaModel", "pooler", _DROPOUTS, _positions_behind_padding, _one_segment),
    "xlm-roberta": Architecture("TFXLMRobertaModel", "pooler", _DROPOUTS, _positions_behind_padding, _one_segment),
    "distilbert": Architecture("TFDistilBertModel", "cls", ("dropout", "attention_dropout"), _positions, _no_inputs),
    "xlnet": Architecture("TFXLNetModel", "last", ("dropout",), _unlimited, _xlnet_segments, half_precision=False),
    "deberta-v2": Architecture(
        "TFDebertaV2Model", "cls", _DROPOUTS, _positions, _one_segment, branches_on_tensors=True
    ),
    "electra": Architecture("TFElectraModel", "cls", _DROPOUTS, _positions, _one_segment),
    "mpnet": Architecture("TFMPNetModel", "pooler", _DROPOUTS, _mpnet_positions, _no_inputs),
    "albert": Architecture("TFAlbertModel", "pooler", _DROPOUTS, _positions, _one_segment),
}
