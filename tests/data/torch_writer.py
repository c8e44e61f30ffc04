"""Files in the format of ``torch.save``, written without PyTorch, for tests of reading."""

import io
import struct
import zipfile
from dataclasses import dataclass, field
from typing import Any

import numpy as np

STORAGES = {"f4": "Float", "f8": "Double", "f2": "Half", "i8": "Long", "i4": "Int", "i2": "Short", "u1": "Byte"}
STORAGES |= {"i1": "Char", "b1": "Bool"}


@dataclass
class Obj:
    """An object of a class, with its attributes."""

    module: str
    name: str
    state: dict[str, Any]


@dataclass
class Claim:
    """A tensor whose description may lie."""

    numbers: np.ndarray
    offset: Any = 0
    shape: Any = None
    strides: Any = None
    count: Any = None
    kind: str = ""


@dataclass
class Writer:
    """The instructions of one pickle, and the numbers that it refers to."""

    out: bytearray = field(default_factory=lambda: bytearray(b"\x80\x02"))
    storages: list[bytes] = field(default_factory=list)

    def put(self, value: Any) -> None:
        """Add the instructions that make a value."""
        if value is None or isinstance(value, bool):
            self.out += {None: b"N", True: b"\x88", False: b"\x89"}[value]
        elif isinstance(value, int):
            size = value.bit_length() // 8 + 1
            self.out += b"\x8a" + bytes([size]) + value.to_bytes(size, "little", signed=True)
        elif isinstance(value, float):
            self.out += b"G" + struct.pack(">d", value)
        elif isinstance(value, str):
            raw = value.encode()
            self.out += b"X" + struct.pack("<I", len(raw)) + raw
        elif isinstance(value, dict):
            self.out += b"ccollections\nOrderedDict\n)R("
            for key, one in value.items():
                self.put(key)
                self.put(one)
            self.out += b"u}b"  # and a state, as a state dictionary has its metadata
        elif isinstance(value, tuple | list):
            self.out += b"(" if isinstance(value, tuple) else b"]("
            for one in value:
                self.put(one)
            self.out += b"t" if isinstance(value, tuple) else b"e"
        elif isinstance(value, np.ndarray):
            self.put(Claim(value))
        elif isinstance(value, Claim):
            self._tensor(value)
        elif isinstance(value, Obj):
            self.out += f"c{value.module}\n{value.name}\n)\x81".encode("latin-1")
            self.put(value.state)
            self.out += b"b"
        else:
            raise TypeError(type(value))

    def _tensor(self, claim: Claim) -> None:
        numbers = claim.numbers
        base = numbers if numbers.base is None else numbers.base  # a view keeps its strides
        kind = claim.kind or STORAGES[numbers.dtype.str[1:]]
        shape = numbers.shape if claim.shape is None else claim.shape
        strides = tuple(one // numbers.itemsize for one in numbers.strides) if claim.strides is None else claim.strides
        self.out += b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storage"
        self.out += f"ctorch\n{kind}Storage\n".encode()
        self.put(str(len(self.storages)))
        self.put("cpu")
        self.put(base.size if claim.count is None else claim.count)
        self.out += b"tQ"
        for one in (claim.offset, shape, strides, False):
            self.put(one)
        self.out += b"ccollections\nOrderedDict\n)RtR"
        self.storages.append(base.tobytes())


def torch_zip(value: Any, *, pickled: bytes | None = None, storages: list[bytes] | None = None, **more: bytes) -> bytes:
    """Return the bytes of a file in the format of today.

    Args:
        value: what is saved.
        pickled: takes the place of the value's own pickle.
        storages: take the place of the value's own numbers.
        **more: further entries by name, such as ``byteorder``.
    """
    writer = Writer()
    writer.put(value)
    entries = {"data.pkl": bytes(writer.out) + b"." if pickled is None else pickled, "version": b"3\n"}
    entries |= {f"data/{number}": raw for number, raw in enumerate(writer.storages if storages is None else storages)}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, raw in {**entries, **more}.items():
            archive.writestr(f"archive/{name}", raw)
    return file.getvalue()
