"""Nested parameters of a classifier, such as ``tfidf__ngram_max``, and their checks."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from xmc_tf.common.errors import InputError
from xmc_tf.params import (
    HierarchicalKMeansParams,
    LinearLevelParams,
    MatcherParams,
    Params,
    RankerParams,
    TfidfParams,
)

# Parameters of the classifier that are blocks of parameters themselves; None stands for the class's defaults.
BLOCKS: dict[str, type[Params]] = {
    "tfidf": TfidfParams,
    "tree": HierarchicalKMeansParams,
    "ranker": LinearLevelParams,
    "matcher": MatcherParams,
}


def nested(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters within all blocks, by names such as ``tfidf__ngram_max``."""
    found: dict[str, Any] = {}
    for name, kind in BLOCKS.items():
        block = kind() if params[name] is None else params[name]
        if not isinstance(block, Params):
            continue  # set_params accepts any value; fit refuses it
        found |= {f"{name}__{field.name}": getattr(block, field.name) for field in dataclasses.fields(block)}
    return found


def replaced(params: Mapping[str, Any], name: str, changes: Mapping[str, Any]) -> Params:
    """Return a block, such as "tfidf", with some of its parameters changed."""
    block = _block(params, name)
    known = [field.name for field in dataclasses.fields(block)]
    for key in changes:
        if key not in known:
            raise InputError(
                f"{name}__{key} is not a parameter of XMCClassifier",
                expected=", ".join(f"{name}__{one}" for one in known),
            )
    return dataclasses.replace(block, **changes)


def check_options(params: Mapping[str, Any]) -> None:
    """Refuse parameters that no training can use, before any work."""
    if params["model"] not in ("linear", "transformer"):
        raise InputError("model is unknown", expected='"linear" or "transformer"', received=repr(params["model"]))
    for name in ("max_labels", "scored_labels", "beam_size"):
        value = params[name]
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not (whole and value >= 1) and not (value is None and name == "max_labels"):
            raise InputError(f"{name} is out of range", expected="a whole number of at least 1", received=repr(value))
    if not isinstance(params["threshold"], int | float):
        raise InputError("threshold is not a number", expected="0 to 1", received=repr(params["threshold"]))
    for name in BLOCKS:
        _block(params, name)


def _block(params: Mapping[str, Any], name: str) -> Params:
    """Return a block, or the default for None."""
    block, kind = params[name], BLOCKS[name]
    if block is None:
        return kind()
    kinds: tuple[type[Params], ...] = (kind, RankerParams) if name == "ranker" else (kind,)
    if not isinstance(block, kinds):
        raise InputError(
            f"{name} has the wrong type",
            expected=" or ".join(one.__name__ for one in kinds) + ", or None",
            received=f"{type(block).__name__}: {block!r}"[:80],
            fix=f"{name}={kind.__name__}(...)",
        )
    return block
