"""Read files of ``torch.save`` without PyTorch. Only known instructions and names are accepted, so no code runs."""

import io
import math
import mmap
import pickle
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.archives import HEAD_BYTES, data_start

_LONGEST_PICKLE = 1 << 26
_OLD_HEAD = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_MOST_READS = 10_000_000  # a model of 1,000 tensors takes about 100,000
_MOST_DIMENSIONS = 8
_SHOWN = 80  # maximum number of characters of a name in messages

# PyTorch's names for the types of numbers; numpy has no bfloat16.
_NUMBERS = {
    "torch.FloatStorage": "<f4",
    "torch.DoubleStorage": "<f8",
    "torch.HalfStorage": "<f2",
    "torch.BFloat16Storage": "bfloat16",
    "torch.LongStorage": "<i8",
    "torch.IntStorage": "<i4",
    "torch.ShortStorage": "<i2",
    "torch.CharStorage": "|i1",
    "torch.ByteStorage": "|u1",
    "torch.BoolStorage": "|b1",
}
_TENSORS = {"torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor"}
_PARAMETER = "torch._utils._rebuild_parameter"
_DICTIONARY = "collections.OrderedDict"
_SETS = {"__builtin__.set", "builtins.set"}
# Classes whose attributes are needed: PECOS's label head and its layers.
_HOLDERS = {"pecos.xmc.xtransformer.network.TransformerLinearXMCHead", "torch.nn.modules.sparse.Embedding"}
_DAMAGE = (
    pickle.UnpicklingError, ValueError, LookupError, ArithmeticError, TypeError, AttributeError, EOFError
)  # fmt: skip
_KNOWN = {*_NUMBERS, *_TENSORS, _PARAMETER, _DICTIONARY, *_SETS, *_HOLDERS}


@dataclass(frozen=True)
class Storage:
    """A range of numbers in the file."""

    key: str
    dtype: str  # NumPy's name, or "bfloat16"
    count: int


@dataclass(frozen=True)
class Tensor:
    """The location of a tensor's numbers in its storage; the offset and the strides are in elements, not bytes."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass
class PlainObject:
    """The attributes of an instance of a known class."""

    name: str
    attributes: dict[str, Any] = field(default_factory=dict)


class _RefusedError(Exception):
    """A pickle contains an instruction or a name that is not allowed."""


class _Name(str):
    """A placeholder for a class or function that the file refers to by name."""


def read_pickle(stream: Any, file: str) -> Any:
    """Return the object in a pickle (plain values, ``Tensor``, ``PlainObject``), and leave the stream at its end."""
    try:
        return _Reader(_Limited(stream), encoding="latin-1").load()
    except _RefusedError as error:
        received = "".join(letter if letter.isprintable() else "?" for letter in str(error)[:_SHOWN])
        raise InputError(
            f"{file} contains something other than tensors and is not loaded",
            expected="tensors and plain values only; code in a file is never executed",
            received=received,
            fix="use a file from a source you trust, or save the weights as model.safetensors",
        ) from None
    except _DAMAGE as error:
        raise InputError(
            f"{file} is damaged or not a PyTorch file",
            expected="tensors as torch.save writes them",
            received=(str(error) or type(error).__name__)[:_SHOWN],
            fix="copy the file again",
        ) from None


class _Limited:
    """A stream with a limited number of reads. This limits the instructions, because each reads at least once."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._reads = stream, 0

    def read(self, size: int) -> bytes:
        self._count()
        found: bytes = self._stream.read(size)
        if len(found) != size:
            raise EOFError("the end of the data within an instruction")
        return found

    def readline(self) -> bytes:
        self._count()
        found: bytes = self._stream.readline()
        return found

    def _count(self) -> None:
        self._reads += 1
        if self._reads > _MOST_READS:
            raise EOFError(f"more than {_MOST_READS:,} reads")


class _Instructions(dict[int, Any]):
    """The instructions that are allowed; all others raise an error."""

    def __missing__(self, code: int) -> Any:
        raise _RefusedError(f"the pickle instruction {bytes([code])!r}")


# The reader in C takes no list of instructions, sets attributes of whatever it has built, ends the process if a key is
# nested too deeply to be hashed, and allocates as much memory as the number of an object implies.
class _Reader(pickle._Unpickler):
    """Python's unpickler, restricted to known instructions and names."""

    stack: list[Any]

    def find_class(self, module: str, name: str) -> _Name:
        found = f"{module}.{name}"
        if found not in _KNOWN:
            raise _RefusedError(f"the name {found}")
        return _Name(found)

    def persistent_load(self, reference: Any) -> Storage:
        # Old files have a sixth entry, for a view of another storage.
        if type(reference) is not tuple or reference[:1] != ("storage",) or reference[5:] not in ((), (None,)):
            raise _RefusedError("a reference to something other than a storage")
        _, kind, key, _, count = reference[:5]
        if type(kind) is not _Name or kind not in _NUMBERS or type(key) is not str or not _whole(count):
            raise ValueError("a storage with an invalid description")
        return Storage(key, _NUMBERS[kind], count)

    def load_reduce(self) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        if type(function) is not _Name or type(arguments) is not tuple:
            raise _RefusedError("a call of something that is not a known name")
        if function in _TENSORS:
            self.stack.append(_tensor(*arguments[:4]))
        elif function == _PARAMETER and arguments and isinstance(arguments[0], Tensor):
            self.stack.append(arguments[0])
        elif function == _DICTIONARY and not arguments:
            self.stack.append({})
        elif function in _SETS and len(arguments) == 1 and isinstance(arguments[0], list):
            self.stack.append(arguments[0])  # sets are read as lists, because their content is not used
        else:
            raise _RefusedError(f"a call of {function} with other arguments than PyTorch's")

    def load_newobj(self) -> None:
        arguments, kind = self.stack.pop(), self.stack.pop()
        if type(kind) is not _Name or kind not in _HOLDERS or arguments != ():
            raise _RefusedError("an object of an unknown class")
        self.stack.append(PlainObject(str(kind)))

    def load_build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if isinstance(target, PlainObject) and isinstance(state, dict):
            target.attributes = state  # not a copy, because a file could request many large copies
        elif not isinstance(target, dict):  # for a state dictionary, this is the version of its layers
            raise _RefusedError(f"a state for a {type(target).__name__}")

    def load_setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._set([key, value])

    def load_setitems(self) -> None:
        self._set(self.pop_mark())  # type: ignore[attr-defined]

    def _set(self, items: list[Any]) -> None:
        keys, target = items[::2], self.stack[-1]
        # Keys of other types could be nested so deeply that hashing them would exhaust the stack.
        if type(target) is not dict or len(items) % 2 or any(type(key) not in (str, int) for key in keys):
            raise ValueError("a dictionary whose keys are not strings or numbers")
        target.update(zip(keys, items[1::2], strict=True))

    def load_frame(self) -> None:
        self.read(8)  # type: ignore[attr-defined]  # its length: the instructions are read one by one

    def load_stop(self) -> None:
        if len(self.stack) != 1 or self.metastack:  # type: ignore[attr-defined]
            raise ValueError(f"{len(self.stack)} objects at the end")
        super().load_stop()  # type: ignore[misc]

    dispatch = _Instructions(
        {
            getattr(pickle, name)[0]: pickle._Unpickler.dispatch[getattr(pickle, name)[0]]
            for name in (
                "PROTO", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1",
                "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINSTRING", "SHORT_BINSTRING", "BINPUT", "LONG_BINPUT",
                "MEMOIZE", "BINGET", "LONG_BINGET", "EMPTY_TUPLE", "EMPTY_LIST", "EMPTY_DICT", "TUPLE", "TUPLE1",
                "TUPLE2", "TUPLE3", "APPEND", "APPENDS", "GLOBAL", "STACK_GLOBAL", "BINPERSID",
            )
        }
        | {
            pickle.REDUCE[0]: load_reduce, pickle.NEWOBJ[0]: load_newobj, pickle.BUILD[0]: load_build,
            pickle.SETITEM[0]: load_setitem, pickle.SETITEMS[0]: load_setitems, pickle.FRAME[0]: load_frame,
            pickle.STOP[0]: load_stop,
        }
    )  # fmt: skip


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any) -> Tensor:
    if (
        type(storage) is not Storage
        or not _whole(offset)
        or not (type(shape) is type(strides) is tuple and len(shape) == len(strides))
        or len(shape) > _MOST_DIMENSIONS
        or not all(map(_whole, shape + strides))
    ):
        raise ValueError("a tensor with an invalid description")
    return Tensor(storage, offset, shape, strides)


def _whole(value: Any) -> bool:
    """Return whether a value is an integer from 0 to 2^62 - 1, which can be an address or a size."""
    return type(value) is int and 0 <= value < 1 << 62


class TorchFile:
    """A file of ``torch.save``. In ``content``, each tensor is a ``Tensor``, whose numbers ``array`` reads."""

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
        """Return the numbers of a tensor: a read-only view of the file, or a float32 copy if they are bfloat16."""
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
                fix="save the weights as model.safetensors on that machine",
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
        """Return the offset and length of an entry's data in the file. PyTorch never compresses entries."""
        if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
            raise self._damaged(f"a compressed or encrypted entry {entry.filename[:40]!r}")
        try:
            begin = data_start(entry, self._bytes[entry.header_offset : entry.header_offset + HEAD_BYTES])
        except zipfile.BadZipFile as error:
            raise self._damaged(str(error)) from None
        if begin + entry.file_size > len(self._bytes):
            raise self._damaged(f"an entry {entry.filename[:40]!r} that ends after the end of the file")
        return begin, entry.file_size
