"""Checksums of what the user gives: whether it is the same as last time, and the same on all ranks."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import issparse

from xmc_tf.common.errors import InputError
from xmc_tf.data import Features, TextFile
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks
from xmc_tf.tree import LabelTree

_PIECE = 1 << 22


def checksum(thing: Any) -> str | None:
    """A checksum of texts, names, a matrix, features or a tree; None for None."""
    if thing is None:
        return None
    total = hashlib.blake2b(digest_size=16)
    _add(total, thing)
    return total.hexdigest()


def files_of(name: str) -> list[list[str | int]] | None:
    """Return the sizes and dates of a folder's files; None if the path is not a folder."""
    folder = Path(name).expanduser()
    if not folder.is_dir():
        return None
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return [[str(path.relative_to(folder)), path.stat().st_size, path.stat().st_mtime_ns] for path in found]


def same_everywhere(communicator: Communicator, checksums: Mapping[str, str | None]) -> None:
    """Refuse ranks with different data: they would train without an error, and the model would be useless.

    Args:
        communicator: the ranks.
        checksums: of each thing that was given, by what it is called.
    """
    everyones = communicator.allgather((communicator.host, dict(checksums)))

    def compare() -> None:
        _, first = everyones[0]
        for rank, (host, theirs) in enumerate(everyones):
            other = [name for name, value in theirs.items() if value != first.get(name)]
            if other:
                raise InputError(
                    f"rank {rank} on {host} received different {' and '.join(other)} than rank 0",
                    expected="the same files on all ranks",
                    fix="put them on a shared file system, or copy them to all hosts again",
                )

    run_on_all_ranks(communicator, compare)


def _add(total: Any, thing: Any) -> None:
    if isinstance(thing, TextFile):
        with thing.path.open("rb") as file:
            while piece := file.read(_PIECE):
                total.update(piece)
    elif isinstance(thing, Features):
        for part in (thing.sparse, thing.dense):
            _add(total, part)
    elif isinstance(thing, LabelTree):
        for array in (*thing.splits, thing.labels):
            _add(total, array)
    elif issparse(thing):
        total.update(f"{thing.format} {thing.shape} ".encode())
        # The type of the indices says how the file was written, not what is in it.
        for array in (thing.indptr, thing.indices):
            _add(total, array.astype(np.int64, copy=False))
        _add(total, thing.data)
    elif isinstance(thing, np.ndarray):
        total.update(f"{thing.dtype.str} {thing.shape} ".encode())
        total.update(np.ascontiguousarray(thing).reshape(-1).view(np.uint8).data)
    elif isinstance(thing, Sequence):
        for line in thing:
            total.update((line.encode("utf-8", errors="replace") if isinstance(line, str) else bytes(line)) + b"\n")
    elif thing is not None:
        raise TypeError(f"no checksum of {type(thing).__name__}")
