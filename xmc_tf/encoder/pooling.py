"""Pooling of token states into one embedding per document, as the checkpoint was trained."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from xmc_tf.common.errors import InputError

POOLINGS = ("mean", "cls", "pooler", "max", "last", "last_tanh")  # last_tanh: PECOS's for XLNet
OWN_FILE = "pooling.json"
_LOWEST = float(np.finfo(np.float32).min)


def check_pooling(pooling: str) -> None:
    """Raise an InputError for the name of an unknown pooling."""
    if pooling not in ("auto", *POOLINGS):
        raise InputError(
            f"unknown pooling {pooling!r}", expected=", ".join(("auto", *POOLINGS)), received=repr(pooling)
        )


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


def write_pooling(folder: Path, pooling: str) -> None:
    (folder / OWN_FILE).write_text(json.dumps({"pooling": pooling}) + "\n", encoding="utf-8")
