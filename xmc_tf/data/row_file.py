import os
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.lib import format as npy_format

from xmc_tf.data.npz.npy_head import read_head


class RowFile:
    """An .npy matrix of float32, which one rank creates and several ranks open and fill at the same time."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("r+b")
        try:
            head = read_head(self._file, f"embeddings: {path}")
        except BaseException:
            self._file.close()
            raise
        self._begin, self._row_bytes = head.length, head.shape[1] * head.dtype.itemsize

    @staticmethod
    def create(path: Path, shape: tuple[int, int]) -> None:
        """Create a file of zeros, replacing an older one."""
        npy_format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)

    def write(self, first: int, rows: np.ndarray) -> None:
        """Write rows, the first of which is row ``first`` of the file."""
        rest = np.ascontiguousarray(rows, np.float32).data.cast("B")
        offset = self._begin + first * self._row_bytes
        while rest:
            count = os.pwrite(self._file.fileno(), rest, offset)
            rest, offset = rest[count:], offset + count

    def sync(self) -> None:
        """Wait until the rows are on disk."""
        os.fsync(self._file.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()
