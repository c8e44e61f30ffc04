import io
import math
import mmap
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.archives import HEAD_BYTES, data_start
from xmc_tf.data.torch.pickle import Tensor, read_pickle

_LONGEST_PICKLE = 1 << 26
_OLD_HEAD = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."


class TorchFile:
    """A file of ``torch.save``, read without PyTorch; ``content`` has a ``Tensor``, for ``array``, for each tensor."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise InputError(f"{self.path} is not a file", expected="a file that torch.save wrote")
        self._where: dict[str, tuple[int, int]] = {}  # first byte and number of bytes of each storage
        with self.path.open("rb") as file:
            if self.path.stat().st_size == 0:
                raise self._damaged("an empty file")
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if zipfile.is_zipfile(self.path):
            self.content = self._read_zip()
        elif self._bytes[: len(_OLD_HEAD)] == _OLD_HEAD:
            raise InputError(
                f"{self.path} has the format of PyTorch before version 1.6",
                expected="the zip archive that torch.save writes today",
                fix="load it with a current PyTorch and save it again, or save the weights as model.safetensors",
            )
        else:
            raise self._damaged("not a zip archive")

    def array(self, tensor: Tensor) -> np.ndarray:
        """Return a tensor's numbers as a read-only array; bfloat16 becomes float32."""
        storage = tensor.storage
        if storage.key not in self._where:
            raise self._damaged(f"no numbers for storage {storage.key[:20]!r}")
        begin, size = self._where[storage.key]
        halved = storage.dtype == "bfloat16"
        dtype = np.dtype("<u2" if halved else storage.dtype)
        count = math.prod(tensor.shape)
        last = tensor.offset + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.strides, strict=True))
        if count > storage.count or (count and last >= storage.count):
            shape = " × ".join(map(str, tensor.shape)) or "()"
            raise self._damaged(f"a tensor of shape {shape} in {storage.count:,} numbers")
        if not count:
            return np.zeros(tensor.shape, np.float32 if halved else dtype)
        if storage.count * dtype.itemsize > size:
            raise self._damaged(f"{size:,} bytes for {storage.count:,} numbers")
        strides = tuple(step * dtype.itemsize for step in tensor.strides)
        first = begin + tensor.offset * dtype.itemsize
        found: np.ndarray = np.ndarray(tensor.shape, dtype, self._bytes, first, strides)
        return (found.astype(np.uint32) << 16).view(np.float32) if halved else found

    def _damaged(self, received: str) -> InputError:
        return InputError(
            f"{self.path} is damaged or not a PyTorch file",
            expected="tensors as torch.save writes them",
            received=received,
            fix="copy the file again",
        )

    def _read_zip(self) -> Any:
        try:
            with zipfile.ZipFile(self.path) as archive:
                entries = {entry.filename: entry for entry in archive.infolist()}
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError) as error:
            raise self._damaged(str(error)) from None
        roots = [name.partition("/")[0] for name in entries if name.endswith("/data.pkl") and name.count("/") == 1]
        if len(roots) != 1:
            raise self._damaged("a zip archive without one data.pkl")
        order = entries.get(f"{roots[0]}/byteorder")
        if order is not None and self._entry(order) == b"big":
            raise InputError(
                f"{self.path} was written on a big-endian machine",
                expected="numbers in little-endian order",
                fix="save the weights as model.safetensors there",
            )
        prefix = f"{roots[0]}/data/"
        for name, entry in entries.items():
            if name.startswith(prefix):
                self._where[name.removeprefix(prefix)] = self._extent(entry)
        pickled = entries[f"{roots[0]}/data.pkl"]
        if pickled.file_size > _LONGEST_PICKLE:
            raise self._damaged(f"data.pkl of {pickled.file_size:,} bytes")
        return read_pickle(io.BytesIO(self._entry(pickled)), str(self.path))

    def _entry(self, entry: zipfile.ZipInfo) -> bytes:
        begin, size = self._extent(entry)
        return self._bytes[begin : begin + size]

    def _extent(self, entry: zipfile.ZipInfo) -> tuple[int, int]:
        """Return the first byte of an entry and its length; PyTorch never compresses entries."""
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
            raise self._damaged(f"a compressed or encrypted entry {entry.filename[:40]!r}")
        try:
            begin = data_start(entry, self._bytes[entry.header_offset : entry.header_offset + HEAD_BYTES])
        except zipfile.BadZipFile as error:
            raise self._damaged(str(error)) from None
        if begin + entry.file_size > len(self._bytes):
            raise self._damaged(f"an entry {entry.filename[:40]!r} that ends after the end of the file")
        return begin, entry.file_size
