"""Solved sub-problems on disk: the weight columns of some labels, in the order in which they were solved."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from xmc_tf.common.atomic import atomic_file
from xmc_tf.common.errors import InputError
from xmc_tf.data.npz import read_npz
from xmc_tf.data.npz_write import Stream, write_npz
from xmc_tf.linear.distributed.plan import SubProblem
from xmc_tf.linear.kernels.emit import Columns


class Block(NamedTuple):
    """Some labels' columns.

    Args:
        labels: whose they are.
        counts: how many weights each has.
        features: the row of each weight; mapped.
        weights: the weights; mapped.
    """

    labels: np.ndarray
    counts: np.ndarray
    features: np.ndarray
    weights: np.ndarray


def block_name(sub: SubProblem, key: str) -> str:
    """The file's name: where the sub-problem is from, and the key of the inputs."""
    return f"{sub.level}.{sub.first}-{sub.last}.{key[:12]}.npz"


def write_block(path: Path, parts: Sequence[Columns]) -> None:
    """Writes the columns of a sub-problem's tasks, whole or not at all."""
    with atomic_file(path) as file:
        write_npz(file, {
            "labels": np.concatenate([part.labels for part in parts]),
            "counts": np.concatenate([np.diff(part.indptr) for part in parts]),
            "features": _one_after_the_other([part.features for part in parts]),
            "weights": _one_after_the_other([part.weights for part in parts]),
        })  # fmt: skip


def _one_after_the_other(arrays: Sequence[np.ndarray]) -> Stream:
    return Stream(arrays[0].dtype, sum(map(len, arrays)), lambda: arrays)


def open_block(path: Path) -> Block:
    """Reads the heads of a block's columns and maps the columns themselves.

    Raises:
        InputError: the file is damaged.
    """
    arrays = read_npz(path, name="solved sub-problem")
    if any(name not in arrays for name in Block._fields):
        raise InputError(f"{path} is no solved sub-problem", fix="delete it; it will be solved again")
    block = Block(*(arrays[name] for name in Block._fields))
    if block.counts.shape != block.labels.shape or block.counts.sum() != len(block.features):
        raise InputError(f"{path} does not hold what its head says", fix="delete it; it will be solved again")
    return block._replace(labels=np.array(block.labels), counts=np.array(block.counts))


def is_solved(path: Path) -> bool:
    """Whether a whole block is there; one that a failing disk has left damaged is removed."""
    if not path.exists():
        return False
    try:
        open_block(path)
    except InputError:
        path.unlink()
        return False
    return True
