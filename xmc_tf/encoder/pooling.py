"""Pooling of token states into one embedding per document, as the checkpoint was trained."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.json_files import parse_json

POOLINGS = ("mean", "cls", "pooler", "max", "last", "last_tanh")  # last_tanh: PECOS's for XLNet
OWN_FILE = "pooling.json"
_LOWEST = float(np.finfo(np.float32).min)

# Fields of sentence-transformers' file, and our names for their poolings.
_SENTENCE_TRANSFORMERS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "last",
}


def check_pooling(pooling: str) -> str:
    """Return the name of a pooling or "auto" unchanged; raise InputError if it is unknown."""
    if pooling not in (*POOLINGS, "auto"):
        raise InputError(
            f"unknown pooling {pooling!r}", expected=", ".join(("auto", *POOLINGS)), received=repr(pooling)
        )
    return pooling


def pool(ops: Any, pooling: str, states: Any, mask: Any, last_is_cls: bool) -> Any:
    """Return float32 [documents, dim] for any pooling but "pooler", which has weights; 0 for an empty document."""
    if pooling in ("last", "last_tanh") or (pooling == "cls" and last_is_cls):
        last = ops.reduce_sum(mask, axis=1) - 1
        found = ops.gather(states, ops.maximum(last, 0), axis=1, batch_dims=1)
        return ops.tanh(found) if pooling == "last_tanh" else found
    if pooling == "cls":
        return states[:, 0]
    count = ops.reduce_sum(mask, axis=1, keepdims=True)
    if pooling == "max":
        highest = ops.reduce_max(ops.where(mask[:, :, None] > 0, states, _LOWEST), axis=1)
        return ops.where(count > 0, highest, ops.zeros_like(highest))
    weights = ops.cast(mask, ops.float32)[:, None, :]
    return ops.squeeze(weights @ states, axis=1) / ops.cast(ops.maximum(count, 1), ops.float32)


def own_pooling(content: bytes | None) -> str | None:
    """Return the pooling in our own file; None if there is no such file."""
    if content is None:
        return None
    named = parse_json(content, of=f"the encoder's {OWN_FILE}", top=None)
    if not isinstance(named, dict) or named.get("pooling") not in POOLINGS:
        raise InputError(
            f"the encoder's {OWN_FILE} names no pooling", expected=", ".join(POOLINGS), received=str(named)
        )
    return named["pooling"]


def write_pooling(folder: Path, pooling: str) -> None:
    (folder / OWN_FILE).write_text(json.dumps({"pooling": pooling}) + "\n", encoding="utf-8")


def pooling_module(modules: bytes | None) -> str | None:
    """Return the folder of sentence-transformers' pooling file, from the content of its ``modules.json``."""
    if modules is None:
        return None
    listed = parse_json(modules, of="the encoder's modules.json", top=list, foreign=True)
    found = [one for one in listed if isinstance(one, dict) and str(one.get("type", "")).endswith(".Pooling")]
    return str(found[0].get("path", "")) if found else None


def sentence_transformers_pooling(content: bytes | None, file: str) -> str | None:
    """Return the pooling in sentence-transformers' file; None if there is no such file."""
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
