"""Solved sub-problems on disk: the weight columns of some labels, in the order in which they were solved.

A training has thousands of blocks, and every rank opens all. So they are not archives, but a header (numbers of labels
and of weights) and four arrays: labels, number of weights of each label, features, weights.
"""

import os
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.writing import write_in_steps
from xmc_tf.rankers.distributed.plan import SubProblem
from xmc_tf.rankers.kernels.emit import WeightColumns

_MAGIC = b"xmc_tf solved 1\n"
_HEAD_BYTES = len(_MAGIC) + 16
_LABEL_BYTES, _WEIGHT_BYTES = 16, 8


class WeightBlock(NamedTuple):
    """The weight columns of some labels in a file."""

    path: Path
    labels: np.ndarray  # label of each column
    counts: np.ndarray  # number of weights of each column

    def columns(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the features and the weights of all columns, one label after the other; memory-mapped."""
        nr_weights = int(self.counts.sum())
        if nr_weights == 0:
            return np.zeros(0, np.int32), np.zeros(0, np.float32)
        start = _HEAD_BYTES + _LABEL_BYTES * len(self.labels)
        both = np.memmap(self.path, np.int32, "r", start, (2, nr_weights)).view(np.ndarray)
        return both[0], both[1].view(np.float32)


def block_name(sub: SubProblem, key: str) -> str:
    """Return the file name of a sub-problem's block."""
    return f"{sub.level}.{sub.first}-{sub.last}.{key[:12]}.columns"


def write_block(path: Path, parts: Sequence[WeightColumns]) -> None:
    """Write the columns of a sub-problem's tasks atomically; only one thread may write each block."""
    labels = np.concatenate([part.labels for part in parts]).astype(np.int64)
    counts = np.concatenate([np.diff(part.indptr) for part in parts]).astype(np.int64)
    head = np.array([len(labels), counts.sum()], np.int64)
    # There are thousands of blocks: a fixed name needs half the system calls of a unique one.
    unfinished = f"{path.parent}/.{path.name}.part"
    try:
        with open(unfinished, "wb", buffering=0) as file:
            beginning = _MAGIC + head.tobytes() + labels.tobytes() + counts.tobytes()
            write_in_steps(file, memoryview(beginning))
            at, features = len(beginning), _as(np.int32, (one.features for one in parts))
            for array in chain(features, _as(np.float32, (one.weights for one in parts))):
                write_in_steps(file, array.data, at)
                at += array.nbytes
        os.replace(unfinished, path)
    except OSError:
        Path(unfinished).unlink(missing_ok=True)
        raise


def _as(dtype: type, arrays: Iterable[np.ndarray]) -> Iterable[np.ndarray]:
    return (np.ascontiguousarray(array, dtype) for array in arrays)


def open_block(path: Path) -> WeightBlock:
    """Read the labels of a block; raise InputError if it is damaged."""
    with path.open("rb") as file:
        head, size = file.read(_HEAD_BYTES), os.fstat(file.fileno()).st_size
        if len(head) < _HEAD_BYTES or not head.startswith(_MAGIC):
            raise InputError(f"{path} is not a solved sub-problem", fix="delete it; it will be solved again")
        nr_labels, nr_weights = map(int, np.frombuffer(head, np.int64, 2, len(_MAGIC)))
        whole = size == _HEAD_BYTES + _LABEL_BYTES * nr_labels + _WEIGHT_BYTES * nr_weights
        numbers = np.fromfile(file, np.int64, 2 * nr_labels if whole else 0)
    if not whole or numbers[nr_labels:].sum() != nr_weights:
        raise InputError(f"{path} is inconsistent with its header", fix="delete it; it will be solved again")
    return WeightBlock(path, numbers[:nr_labels], numbers[nr_labels:])


def is_solved(path: Path) -> bool:
    """Return whether a complete block exists; remove a damaged one."""
    if not path.exists():
        return False
    try:
        open_block(path)
    except InputError:
        path.unlink()
        return False
    return True
