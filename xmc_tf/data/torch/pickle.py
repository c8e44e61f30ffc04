"""Reading of the pickle in a PyTorch file, without executing anything in it.

A pickle is a program. This module runs only the instructions that build numbers, strings, lists, dictionaries, tensors
and objects of a few known classes. Tensors become descriptions of the location of their numbers, and objects plain
attribute holders. All other instructions and names are rejected. Nothing is imported, and no code in the file is run.
"""

import pickletools
from dataclasses import dataclass, field
from typing import Any

from xmc_tf.common.errors import InputError

_MOST_INSTRUCTIONS = 5_000_000  # a model of 1,000 tensors has about 50,000
_MOST_DIMENSIONS = 8
_SHOWN = 80  # maximum number of characters of a name in messages
_MARK = object()

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
_KNOWN = {*_NUMBERS, *_TENSORS, _PARAMETER, _DICTIONARY, *_SETS, *_HOLDERS}


@dataclass(frozen=True)
class Storage:
    """A range of numbers in the file.

    Attributes:
        key: its name in the file.
        dtype: numpy's name for the type of the numbers, or "bfloat16".
        count: number of numbers.
    """

    key: str
    dtype: str
    count: int


@dataclass(frozen=True)
class Tensor:
    """The location of a tensor's numbers in its storage; offset and strides count numbers."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass
class Holder:
    """An object of a known class: its attributes, without its code."""

    name: str
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Name:
    """A name to which the file refers."""

    name: str


def read_pickle(stream: Any, file: str) -> Any:
    """Return the object described by a pickle, made of plain values, ``Tensor`` and ``Holder``.

    Args:
        stream: the bytes, such as ``io.BytesIO``; it is then positioned after the pickle.
        file: the file's name in errors.

    Raises:
        InputError: the pickle is damaged, or contains anything but tensors and plain values.
    """
    machine = _Machine(file)
    try:
        for count, (instruction, argument, _) in enumerate(pickletools.genops(stream)):
            if count >= _MOST_INSTRUCTIONS:
                raise machine.damaged(f"more than {_MOST_INSTRUCTIONS:,} instructions")
            machine.run(instruction.name, argument)
    except (ValueError, IndexError, OverflowError, UnicodeError, TypeError, KeyError) as error:
        if isinstance(error, InputError):
            raise
        raise machine.damaged(type(error).__name__) from None
    return machine.result()


class _Machine:
    """The stack and the memo of one pickle."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._stack: list[Any] = []
        self._memory: dict[int, Any] = {}

    def damaged(self, received: str) -> InputError:
        return InputError(
            f"{self._file} is damaged or not a PyTorch file",
            expected="tensors as torch.save writes them",
            received=received[:_SHOWN],
            fix="copy the file again",
        )

    def refused(self, what: str) -> InputError:
        shown = "".join(letter if letter.isprintable() else "?" for letter in what[:_SHOWN])
        return InputError(
            f"{self._file} contains something other than tensors and is not loaded",
            expected="tensors and plain values only; code in a file is never executed",
            received=shown,
            fix="use a file from a source you trust, or save the weights as model.safetensors",
        )

    def result(self) -> Any:
        if len(self._stack) != 1:
            raise self.damaged(f"{len(self._stack)} objects at the end")
        return self._stack[0]

    def run(self, instruction: str, argument: Any) -> None:
        if instruction in ("PROTO", "FRAME", "STOP"):
            return
        if instruction in _PLAIN:
            self._stack.append(argument)
        elif instruction in _CONSTANTS:
            self._stack.append(_CONSTANTS[instruction]())
        elif instruction in ("BINPUT", "LONG_BINPUT"):
            self._memory[argument] = self._top()
        elif instruction == "MEMOIZE":
            self._memory[len(self._memory)] = self._top()
        elif instruction in ("BINGET", "LONG_BINGET"):
            self._stack.append(self._memory[argument])
        elif (method := getattr(self, f"_{instruction.lower()}", None)) is not None and instruction in _COMPOSING:
            method(argument)
        else:
            raise self.refused(f"the pickle instruction {instruction}")

    # Removing objects from the stack.

    def _top(self) -> Any:
        if self._stack[-1] is _MARK:
            raise self.damaged("a mark in place of an object")
        return self._stack[-1]

    def _pop(self) -> Any:
        top = self._top()
        self._stack.pop()
        return top

    def _pop_to_mark(self) -> list[Any]:
        items: list[Any] = []
        while (top := self._stack.pop()) is not _MARK:
            items.append(top)
        return items[::-1]

    # Instructions that assemble objects.

    def _tuple(self, _: Any) -> None:
        self._stack.append(tuple(self._pop_to_mark()))

    def _tuple1(self, _: Any) -> None:
        self._stack.append((self._pop(),))

    def _tuple2(self, _: Any) -> None:
        second, first = self._pop(), self._pop()
        self._stack.append((first, second))

    def _tuple3(self, _: Any) -> None:
        third, second, first = self._pop(), self._pop(), self._pop()
        self._stack.append((first, second, third))

    def _append(self, _: Any) -> None:
        item = self._pop()
        self._list().append(item)

    def _appends(self, _: Any) -> None:
        items = self._pop_to_mark()
        self._list().extend(items)

    _additems = _appends  # sets are read as lists, because their content is not used

    def _setitem(self, _: Any) -> None:
        value, key = self._pop(), self._pop()
        self._put([key, value])

    def _setitems(self, _: Any) -> None:
        self._put(self._pop_to_mark())

    def _list(self) -> list[Any]:
        if not isinstance(self._top(), list):
            raise self.damaged(f"items for a {type(self._top()).__name__}")
        return self._stack[-1]

    def _put(self, items: list[Any]) -> None:
        target = self._top()
        keys, values = items[::2], items[1::2]
        # Keys of other types could be nested so deeply that hashing them would exhaust the stack.
        if not isinstance(target, dict) or len(keys) != len(values) or any(type(key) not in (str, int) for key in keys):
            raise self.damaged("a dictionary whose keys are not strings or numbers")
        target.update(zip(keys, values, strict=True))

    def _global(self, argument: str) -> None:
        self._name(argument.replace(" ", ".", 1))

    def _stack_global(self, _: Any) -> None:
        name, module = self._pop(), self._pop()
        if not (isinstance(name, str) and isinstance(module, str)):
            raise self.damaged("a name that is not a string")
        self._name(f"{module}.{name}")

    def _name(self, name: str) -> None:
        if name not in _KNOWN:
            raise self.refused(f"the name {name}")
        self._stack.append(_Name(name))

    def _binpersid(self, _: Any) -> None:
        reference = self._pop()
        # Old files have a sixth entry, for a view of another storage.
        if (
            not isinstance(reference, tuple)
            or len(reference) not in (5, 6)
            or reference[0] != "storage"
            or reference[5:] not in ((), (None,))
        ):
            raise self.refused("a reference to something other than a storage")
        kind, key, count = reference[1], reference[2], reference[4]
        if not isinstance(kind, _Name) or kind.name not in _NUMBERS or not isinstance(key, str) or not _whole(count):
            raise self.damaged("a storage that is not described")
        self._stack.append(Storage(key, _NUMBERS[kind.name], count))

    def _reduce(self, _: Any) -> None:
        arguments, function = self._pop(), self._pop()
        if not isinstance(function, _Name) or not isinstance(arguments, tuple):
            raise self.refused("a call of something that is not a known name")
        if function.name in _TENSORS:
            self._stack.append(self._tensor(arguments))
        elif function.name == _PARAMETER and arguments and isinstance(arguments[0], Tensor):
            self._stack.append(arguments[0])
        elif function.name == _DICTIONARY and not arguments:
            self._stack.append({})
        elif function.name in _SETS and len(arguments) == 1 and isinstance(arguments[0], list):
            self._stack.append(arguments[0])
        else:
            raise self.refused(f"a call of {function.name} with other arguments than PyTorch's")

    def _tensor(self, arguments: tuple[Any, ...]) -> Tensor:
        if len(arguments) < 4:
            raise self.damaged("a tensor that is not described")
        storage, offset, shape, strides = arguments[:4]
        if (
            not isinstance(storage, Storage)
            or not _whole(offset)
            or not (isinstance(shape, tuple) and isinstance(strides, tuple) and len(shape) == len(strides))
            or len(shape) > _MOST_DIMENSIONS
            or not all(map(_whole, shape + strides))
        ):
            raise self.damaged("a tensor that is not described")
        return Tensor(storage, offset, shape, strides)

    def _newobj(self, _: Any) -> None:
        arguments, kind = self._pop(), self._pop()
        if not isinstance(kind, _Name) or kind.name not in _HOLDERS or arguments != ():
            raise self.refused("an object of an unknown class")
        self._stack.append(Holder(kind.name))

    def _build(self, _: Any) -> None:
        state = self._pop()
        target = self._top()
        if isinstance(target, Holder) and isinstance(state, dict):
            target.attributes = state  # not a copy, because a file could request many large copies
        elif not isinstance(target, dict):  # for a state dictionary, this is the version of its layers
            raise self.refused(f"a state for a {type(target).__name__}")


def _whole(value: Any) -> bool:
    """Return whether a value is a whole number of at least 0 that fits an address."""
    return type(value) is int and 0 <= value < 1 << 62


_PLAIN = {
    "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINSTRING",
    "SHORT_BINSTRING",
}  # fmt: skip
_CONSTANTS = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "MARK": lambda: _MARK,
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_SET": list,
    "EMPTY_DICT": dict,
}
_COMPOSING = {
    "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "APPEND", "APPENDS", "ADDITEMS", "SETITEM", "SETITEMS", "GLOBAL",
    "STACK_GLOBAL", "BINPERSID", "REDUCE", "NEWOBJ", "BUILD",
}  # fmt: skip
