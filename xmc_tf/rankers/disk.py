"""Rankers on disk, in PECOS's XLinear format; if there are many weights, the search layout takes the place of theirs.

param.json                marks the folder as an XLinear model
ranker/param.json         depth, numbers of features, codes, labels
ranker/<level>.model/     param.json, C.npz (nodes × parents), W.npz (features + bias row × nodes)
search/                   in place of the W.npz files, if there are many weights
"""

import json
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csc_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import read_json
from xmc_tf.data.matrices import load_matrix, save_matrix
from xmc_tf.params import LinearLevelPredParams
from xmc_tf.rankers.layout import stored as layout
from xmc_tf.rankers.layout.stored import (
    StoredSearch,
    has_search,
    link_search,
    open_search,
    search_records,
    stored_weights,
    write_search,
)
from xmc_tf.rankers.level import Level, UnreadWeights
from xmc_tf.store.checksums import Records, verify
from xmc_tf.store.models import RANKERS
from xmc_tf.store.publishing import publish

_CLASS = "pecos.xmc.base###MLModel"
_MODEL_CLASS = "pecos.xmc.xlinear.model###XLinearModel"


def save_levels(
    levels: Sequence[Level], folder: str | Path, nr_dense: int = 0, stored: StoredSearch | None = None, *,
    pecos: bool = False,
) -> None:  # fmt: skip
    """Write rankers to a folder atomically, or link their ``stored`` search layout. With ``pecos``, they have PECOS's
    format. Older rankers in the folder are replaced, and other files are kept.
    """
    with publish(folder, RANKERS) as part:
        write_parameters(levels, part)
        if stored is not None and not pecos:
            link_search(stored, part)
        elif has_many_weights(levels) and not pecos:
            write_search(part, levels, nr_dense)
        else:
            for t, level in enumerate(levels):
                save_matrix(level_folder(part, t) / "W.npz", level.weights)


def has_many_weights(levels: Sequence[Level]) -> bool:
    return sum(level.nr_weights for level in levels) >= layout.FEWEST_WEIGHTS


def level_folder(folder: Path, t: int) -> Path:
    return folder / "ranker" / f"{t}.model"


def write_parameters(levels: Sequence[Level], folder: Path) -> None:
    """Write the parameter files and the clusters of all levels, but not the weights."""
    _write(folder / "param.json", {"__meta__": {"class_fullname": _MODEL_CLASS}})
    last = levels[-1].clusters
    _write(folder / "ranker" / "param.json", {
        "__meta__": {"class_fullname": "pecos.xmc.base###HierarchicalMLModel"},
        "model": "HierarchicalMLModel",
        "depth": len(levels),
        "nr_features": levels[0].nr_features,
        "nr_codes": int(last.shape[1]),
        "nr_labels": int(last.shape[0]),
    })  # fmt: skip
    for t, level in enumerate(levels):
        here = level_folder(folder, t)
        _write(here / "param.json", {
            "__meta__": {"class_fullname": _CLASS},
            "model": "MLModel",
            "nr_labels": int(level.clusters.shape[0]),
            "nr_features": level.nr_features,
            "nr_codes": int(level.clusters.shape[1]),
            "bias": float(level.bias),
            "pred_kwargs": level.pred_params.to_json(),
        })  # fmt: skip
        save_matrix(here / "C.npz", level.clusters.astype(np.float32))


def load_levels(folder: str | Path) -> tuple[list[Level], StoredSearch | None]:
    """Return the levels in a folder, and their search layout (None if there is none), from which weights are read on
    first use.
    """
    folder = Path(folder)
    records = Records.around(folder)
    own = records is not None  # otherwise, archives are read into memory, which compares their own checksums
    searched = has_search(folder, records)
    verify(folder, records=records or (search_records(folder) if searched else None))
    file = folder / "ranker" / "param.json"
    chain = _read(file, folder)
    depth, nr_features = _whole_number(chain, "depth", file), _whole_number(chain, "nr_features", file)
    files = [level_folder(folder, t) / "param.json" for t in range(depth)]
    params = [_read(file, folder) for file in files]
    biases = [_bias(param, file) for param, file in zip(params, files, strict=True)]
    search = open_search(folder) if searched else None
    levels: list[Level] = []
    for t, (file, param, bias) in enumerate(zip(files, params, biases, strict=True)):
        shape = nr_features + (bias > 0), _whole_number(param, "nr_labels", file)
        weights: csc_matrix | UnreadWeights
        if search is None:
            weights = _csc(file.with_name("W.npz"), shape, mmap=own)
        else:
            weights = UnreadWeights(shape, search.nr_weights[t], partial(stored_weights, search, levels, t))
        clusters = _csc(file.with_name("C.npz"), (shape[1], _whole_number(param, "nr_codes", file)), mmap=own)
        _check_parents(clusters, file.with_name("C.npz"))
        if levels and levels[-1].clusters.shape[0] != clusters.shape[1]:
            raise InputError(
                f"{file.parent}: the parents in C.npz do not match the nodes of the level above",
                expected=f"{levels[-1].clusters.shape[0]:,} parents", received=f"{clusters.shape[1]:,}",
                fix="the folder contains files of two models: copy the model again",
            )  # fmt: skip
        levels.append(Level(weights, clusters, bias, _pred_params(param, file)))
    return levels, search


def _csc(path: Path, shape: tuple[int, int], *, mmap: bool) -> csc_matrix:
    if not path.exists():
        raise InputError(f"{path} is missing", fix="the folder is incomplete: copy it again")
    matrix = csc_matrix(load_matrix(path, name=path.name, mmap=mmap))
    if matrix.shape != shape:
        raise InputError(
            f"{path} does not belong to this model", expected=f"{shape[0]:,} × {shape[1]:,}",
            received=f"{matrix.shape[0]:,} × {matrix.shape[1]:,}",
        )  # fmt: skip
    return matrix


def _read(path: Path, folder: Path) -> dict[str, Any]:
    if not path.exists():
        raise InputError(
            f"{folder} is not a folder of rankers: {path.relative_to(folder)} is missing",
            fix="give the folder that holds param.json and ranker/, or copy it again",
        )
    content: dict[str, Any] = read_json(path, fix="copy the model again")
    if content.get("is_mmap"):
        raise InputError(
            f"{path}: the rankers are in PECOS's memory-mapped format, which xmc_tf cannot read",
            fix="use the original model folder, which contains W.npz and C.npz",
        )
    return content


def _whole_number(param: dict[str, Any], key: str, place: Path) -> int:
    value = param.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{place}: {key} is {value!r}", expected="a whole number of at least 1")
    return value


def _bias(param: dict[str, Any], place: Path) -> float:
    value = param.get("bias", -1.0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(f"{place}: bias is {value!r}", expected="a number; 0 or less: no bias")
    return max(float(value), 0.0)


def _pred_params(param: dict[str, Any], place: Path) -> LinearLevelPredParams:
    try:
        return LinearLevelPredParams.from_json(param.get("pred_kwargs") or {})
    except InputError as error:
        raise error.found_in(f"{place}: pred_kwargs") from None


def _check_parents(clusters: csc_matrix, path: Path) -> None:
    """Raise an error if a node has several parents: a search would find it twice. Pruned nodes have no parent."""
    if len(clusters.indices) and (parents := np.bincount(clusters.indices)).max() > 1:
        raise InputError(
            f"{path}: node {int(parents.argmax()):,} (row, counted from 0) has {parents.max():,} parents",
            expected="at most one entry in each row", fix="the file is damaged: copy the model again",
        )  # fmt: skip


def _write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
