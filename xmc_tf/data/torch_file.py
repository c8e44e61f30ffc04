"""Read files of ``torch.save`` without PyTorch: a few names have a meaning, all others are refused, so no code runs."""

import io
import math
import pickle
import zipfile
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from xmc_tf.common.errors import InputError

_LONGEST_PICKLE = 1 << 26
_BFLOAT16 = np.dtype([("bfloat16", "<u2")])  # NumPy itself has no such type


class _Dictionary(dict[str, Any]):
    """An ``OrderedDict`` without the attributes that PyTorch adds to it: the version of each layer."""

    def __init__(self) -> None:  # without arguments, which could be keys of any kind
        super().__init__()


class _Attributes(_Dictionary):
    """The attributes of an object."""


def read_torch(path: Path) -> Any:
    """Return what a file holds: arrays in place of tensors, and dictionaries of attributes in place of objects."""
    try:
        with zipfile.ZipFile(path) as archive:
            [pickled] = [info for info in archive.infolist() if info.filename.endswith("/data.pkl")]
            folder = pickled.filename.removesuffix("data.pkl")
            if pickled.file_size > _LONGEST_PICKLE or any(info.compress_type for info in archive.infolist()):
                raise ValueError("compressed or very long entries")
            if f"{folder}byteorder" in archive.namelist() and archive.read(f"{folder}byteorder") == b"big":
                raise ValueError("big-endian numbers")
            return _Reader(archive, folder).load()
    except Exception as error:
        received = "".join(letter if letter.isprintable() else "?" for letter in str(error)[:80])
        raise InputError(
            f"{path} is damaged or contains something other than tensors",
            expected="tensors and plain values, as torch.save writes them since PyTorch 1.6; code is never executed",
            received=received or type(error).__name__,
            fix="copy the file again, or convert it where PyTorch is installed: safetensors.torch.save_file("
            'torch.load("pytorch_model.bin", weights_only=True), "model.safetensors")',
        ) from error


# The reader in C allocates what an object's number implies. Hashing a deeply nested key would end the process.
class _Reader(pickle._Unpickler):
    def __init__(self, archive: zipfile.ZipFile, folder: str) -> None:
        super().__init__(io.BytesIO(archive.read(f"{folder}data.pkl")), encoding="latin-1")
        self._numbers = cache(lambda key: archive.read(f"{folder}data/{key}"))

    def find_class(self, module: str, name: str) -> Any:
        if f"{module}.{name}" not in _KNOWN:
            raise pickle.UnpicklingError(f"the name {module}.{name}")
        return _KNOWN[f"{module}.{name}"]

    def persistent_load(self, reference: Any) -> np.ndarray:
        kind, dtype, key = reference[:3]
        if kind != "storage" or not isinstance(dtype, np.dtype) or reference[5:] not in ((), (None,)):
            raise pickle.UnpicklingError("a reference to something other than numbers")
        raw = self._numbers(key)
        return np.frombuffer(raw, dtype, len(raw) // dtype.itemsize)

    def load_build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]  # type: ignore[attr-defined]
        if not isinstance(target, _Dictionary) or not isinstance(state, dict):
            raise pickle.UnpicklingError(f"a state for a {type(target).__name__}")
        if isinstance(target, _Attributes):
            target.update(state)

    def load_setitem(self) -> None:
        self.stack[-2:] = [self.stack[-2:]]  # type: ignore[attr-defined]
        self._set(self.stack.pop())  # type: ignore[attr-defined]

    def load_setitems(self) -> None:
        self._set(self.pop_mark())  # type: ignore[attr-defined]

    def _set(self, items: list[Any]) -> None:
        if any(type(key) not in (str, int) for key in items[::2]):
            raise pickle.UnpicklingError("a dictionary whose keys are not strings or numbers")
        self.stack[-1].update(zip(items[::2], items[1::2], strict=True))  # type: ignore[attr-defined]

    dispatch: ClassVar[dict[int, Any]] = pickle._Unpickler.dispatch | {
        pickle.BUILD[0]: load_build, pickle.SETITEM[0]: load_setitem, pickle.SETITEMS[0]: load_setitems
    }  # fmt: skip


def _tensor(storage: np.ndarray, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: Any) -> np.ndarray:
    dtype, steps = storage.dtype, [step * storage.dtype.itemsize for step in strides]
    if math.prod(shape) > storage.size:
        raise ValueError(f"a tensor of shape {shape} in {storage.size:,} numbers")
    found: np.ndarray = np.ndarray(shape, dtype, storage, offset * dtype.itemsize, steps)  # refuses what lies outside
    return (found["bfloat16"].astype(np.uint32) << 16).view(np.float32) if dtype == _BFLOAT16 else found


_KNOWN: dict[str, Any] = {"collections.OrderedDict": _Dictionary, "torch._utils._rebuild_tensor_v2": _tensor}
_KNOWN |= {"torch._utils._rebuild_tensor": _tensor, "torch._utils._rebuild_parameter": lambda tensor, *_: tensor}
_KNOWN |= dict.fromkeys(("builtins.set", "__builtin__.set"), list)
# PECOS's label head and its layers.
_KNOWN["pecos.xmc.xtransformer.network.TransformerLinearXMCHead"] = _Attributes
_KNOWN["torch.nn.modules.sparse.Embedding"] = _Attributes
_DTYPES: dict[str, Any] = {
    "Float": "<f4",
    "Double": "<f8",
    "Half": "<f2",
    "Long": "<i8",
    "Int": "<i4",
    "Short": "<i2",
    "Char": "i1",
}
_DTYPES |= {"Byte": "u1", "Bool": "?", "BFloat16": _BFLOAT16}
_KNOWN |= {f"torch.{name}Storage": np.dtype(dtype) for name, dtype in _DTYPES.items()}
