"""Parameter files, and skeletons of them with all defaults."""

import json
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import read_json
from xmc_tf.common.regular import existing_file
from xmc_tf.params.base import Params, unknown_key, warn_of_retired
from xmc_tf.params.flags import LONG, differing, override
from xmc_tf.params.linear import HierarchicalKMeansParams, RankerParams, RankerPredParams
from xmc_tf.params.models import XTransformerParams, XTransformerPredParams
from xmc_tf.params.prediction import SEARCH
from xmc_tf.params.tfidf import TfidfParams
from xmc_tf.params.values import MisfitError, shown

P = TypeVar("P", bound=Params)
_LOG = logging.getLogger("xmc_tf.params")
_NONE: Mapping[str, Any] = MappingProxyType({})

_LISTS = ("indexer_params",)  # several trees have a list of blocks
_FEATURES = "tfidf_params"  # the TF-IDF of texts; PECOS has no such block and ignores ours


@contextmanager
def _read(path: str | Path) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Yield the content of a parameter file and a list for its retired keys. Errors and warnings name the file."""
    retired: list[str] = []
    form = "a parameter file: JSON, as --generate-params-skeleton writes it"
    file = existing_file(path, "parameters")
    data: Any = read_json(file, expected=form, top=None, unique_keys=True, foreign=True)
    if not isinstance(data, dict):
        raise InputError(f"{file} contains no parameters", expected="a JSON object {...}", received=type(data).__name__)
    try:
        yield data, retired
    except MisfitError as misfit:
        raise misfit.found_in(path) from None
    warn_of_retired([f"{path}: {key}" for key in retired])


def load_blocks(
    path: str | Path, flags: Mapping[str, Any] = _NONE, *, ignore: Collection[str] = (), **classes: type[Params]
) -> dict[str, Any]:
    """Read the named blocks of a parameter file, with the values of ``flags``. Missing blocks are None."""
    blocks: dict[str, Any] = dict.fromkeys(classes)
    with _read(path) as (data, retired):
        for key, value in data.items():
            cls = classes.get(key)
            if cls is None and key not in ignore and key != "__meta__":
                raise unknown_key(key, "", list(classes))
            if cls is not None and key in _LISTS and isinstance(value, list) and value:
                blocks[key] = tuple(cls.read(one, f"{key}[{i}]", retired) for i, one in enumerate(value))
            elif cls is not None and value is not None:
                blocks[key] = cls.read(value, key, retired)
    found = {key: block for key, block in blocks.items() if block is not None}
    _say_replaced(path, flags, [(classes[key], data[key]) for key in found])
    return blocks | {key: override(block, _of_training(flags)) for key, block in found.items()}


def load_block(path: str | Path, cls: type[P], flags: Mapping[str, Any] = _NONE) -> P:
    """Read a parameter file that consists of a single block, with the values of ``flags``."""
    with _read(path) as (data, retired):
        block = cls.read(data, "", retired)
    _say_replaced(path, flags, [(cls, data)])
    return override(block, _of_training(flags))


def _of_training(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags without those that replace values of a file once the tree, and so its levels, are known."""
    return {name: value for name, value in flags.items() if name not in (*SEARCH, "ensemble_method")}


def _say_replaced(path: str | Path, flags: Mapping[str, Any], read: Sequence[tuple[type[Params], Any]]) -> None:
    """Log a line for each flag that replaces other values of a parameter file."""
    replaced: dict[str, dict[str, None]] = {}
    for cls, content in read:
        for flag, value in differing(cls, content, flags):
            spelled = f"--{LONG.get(flag, flag).replace('_', '-')} {shown(flags[flag])}"
            replaced.setdefault(spelled, {})[shown(value)] = None
    for spelled, values in replaced.items():
        _LOG.info("%s replaces %s of %s", spelled, " and ".join(values), path)


def skeleton_of(params: Params) -> str:
    """Return the text of a parameter file that `load_block` can read."""
    return json.dumps(params.to_json(), indent=1)


def skeleton(**blocks: Params) -> str:
    """Return the text of a parameter file with the given blocks."""
    return json.dumps({name: params.to_json() for name, params in blocks.items()}, indent=1)


def xtransformer_skeleton() -> str:
    """Return a parameter file of the whole model with all defaults."""
    return skeleton(
        train_params=XTransformerParams(), pred_params=XTransformerPredParams(), **{_FEATURES: TfidfParams()}
    )


def linear_skeleton() -> str:
    """Return a parameter file of the linear model with all defaults."""
    return skeleton(
        train_params=RankerParams(), pred_params=RankerPredParams(), indexer_params=HierarchicalKMeansParams(),
        **{_FEATURES: TfidfParams()},
    )  # fmt: skip
