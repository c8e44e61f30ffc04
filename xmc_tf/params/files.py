"""Parameter files, and skeletons of them with all defaults."""

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.json_files import read_json
from xmc_tf.common.files.regular import existing_file
from xmc_tf.params.base import Params, unknown_key, warn_of_retired
from xmc_tf.params.linear import HierarchicalKMeansParams, RankerParams, RankerPredParams
from xmc_tf.params.models import XTransformerParams, XTransformerPredParams
from xmc_tf.params.tfidf import TfidfParams
from xmc_tf.params.values import MisfitError

P = TypeVar("P", bound=Params)

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


def load_blocks(path: str | Path, *, ignore: Collection[str] = (), **classes: type[Params]) -> dict[str, Any]:
    """Read the named blocks of a parameter file. Missing blocks are None."""
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
    return blocks


def load_block(path: str | Path, cls: type[P]) -> P:
    """Read a parameter file that consists of a single block."""
    with _read(path) as (data, retired):
        return cls.read(data, "", retired)


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
