"""Context managers for changes that are undone at the end of a ``with`` block."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")


@contextmanager
def set_in_block(variable: ContextVar[T], value: T) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


@contextmanager
def patched(owner: Any, **attributes: Any) -> Iterator[None]:
    """Replace attributes of an object, class or module in the block. Keras does not track the new values."""
    change, remove = (setattr, delattr) if isinstance(owner, type) else (object.__setattr__, object.__delattr__)
    before = {name: vars(owner)[name] for name in attributes if name in vars(owner)}
    for name, value in attributes.items():
        change(owner, name, value)
    try:
        yield
    finally:
        for name in attributes:
            if name in before:
                change(owner, name, before[name])
            else:
                remove(owner, name)
