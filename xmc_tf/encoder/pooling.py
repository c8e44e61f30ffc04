"""Pooling of token states into one embedding per document, as the checkpoint was trained."""

import json
from pathlib import Path

import tensorflow as tf

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.json_files import parse_json

POOLINGS = ("mean", "cls", "pooler", "max", "last", "last_tanh")  # last_tanh: PECOS's for XLNet
OWN_FILE = "pooling.json"

# The fields of sentence-transformers' file, and our names of the poolings.
_SENTENCE_TRANSFORMERS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "last",
}


def check_pooling(pooling: str) -> str:
    """Return the name of a pooling or ``"auto"`` unchanged.

    Raises:
        InputError: the name is unknown.
    """
    if pooling not in (*POOLINGS, "auto"):
        raise InputError(
            f"unknown pooling {pooling!r}", expected=", ".join(("auto", *POOLINGS)), received=repr(pooling)
        )
    return pooling


def pool(pooling: str, states: tf.Tensor, mask: tf.Tensor, pooler: tf.Tensor | None, last_is_cls: bool) -> tf.Tensor:
    """Return the embeddings of documents.

    Args:
        pooling: one of ``POOLINGS``.
        states: [B, T, dim], the hidden states of the tokens.
        mask: int32 [B, T], 1 for a token.
        pooler: [B, dim], the output of the architecture's own pooler, if it has one.
        last_is_cls: whether the classification token is the last one.

    Returns:
        float32 [B, dim]; 0 for a document without tokens, except with "pooler".
    """
    if pooling == "pooler":
        return tf.cast(pooler, tf.float32)
    states = tf.cast(states, tf.float32)
    if pooling in ("last", "last_tanh") or (pooling == "cls" and last_is_cls):
        last = tf.reduce_sum(mask, axis=1) - 1
        found = tf.gather(states, tf.maximum(last, 0), axis=1, batch_dims=1)
        return tf.tanh(found) if pooling == "last_tanh" else found
    if pooling == "cls":
        return states[:, 0]
    count = tf.reduce_sum(mask, axis=1, keepdims=True)
    if pooling == "max":
        highest = tf.reduce_max(tf.where(mask[:, :, None] > 0, states, states.dtype.min), axis=1)
        return tf.where(count > 0, highest, tf.zeros_like(highest))
    weights = tf.cast(mask, tf.float32)[:, None, :]
    return tf.squeeze(weights @ states, axis=1) / tf.cast(tf.maximum(count, 1), tf.float32)


def own_pooling(content: bytes | None) -> str | None:
    """Return the pooling that our own file names; None if there is no such file."""
    if content is None:
        return None
    named = parse_json(content, of=f"the encoder's {OWN_FILE}", top=None)
    if not isinstance(named, dict) or named.get("pooling") not in POOLINGS:
        raise InputError(
            f"the encoder's {OWN_FILE} names no pooling", expected=", ".join(POOLINGS), received=str(named)
        )
    return named["pooling"]


def write_pooling(folder: Path, pooling: str) -> None:
    """Write the pooling of an encoder into its folder."""
    (folder / OWN_FILE).write_text(json.dumps({"pooling": pooling}) + "\n", encoding="utf-8")


def pooling_module(modules: bytes | None) -> str | None:
    """Return the folder of sentence-transformers' pooling file, from the content of its ``modules.json``."""
    if modules is None:
        return None
    listed = parse_json(modules, of="the encoder's modules.json", top=list, foreign=True)
    found = [one for one in listed if isinstance(one, dict) and str(one.get("type", "")).endswith(".Pooling")]
    return str(found[0].get("path", "")) if found else None


def sentence_transformers_pooling(content: bytes | None, file: str) -> str | None:
    """Return the pooling that sentence-transformers' file names; None if there is no such file.

    Raises:
        InputError: the file names an unsupported pooling, or several.
    """
    if content is None:
        return None
    content_json = parse_json(content, of=f"the encoder's {file}", foreign=True)
    modes = [key for key, value in content_json.items() if key.startswith("pooling_mode") and value is True]
    if len(modes) == 1 and modes[0] in _SENTENCE_TRANSFORMERS:
        return _SENTENCE_TRANSFORMERS[modes[0]]
    raise InputError(
        f"the encoder's {file} has an unsupported pooling",
        expected=f"one of {', '.join(_SENTENCE_TRANSFORMERS)}",
        received=" and ".join(modes) or "none",
        fix=f"choose one (--pooling {' | '.join(POOLINGS)})",
    )
