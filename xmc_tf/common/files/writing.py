from typing import Protocol

_STEP = 1 << 14


class _Writable(Protocol):
    def write(self, data: memoryview, /) -> int | None: ...


def write_in_steps(file: _Writable, data: memoryview, start: int = 0) -> None:
    """Write a flat array's bytes in steps that end at page boundaries. ``start`` is the current offset in the file.

    One large write is slower (256 MB: 1.8 s, not 0.44 s): it needs large blocks of memory, and zeroes partial pages.
    """
    data = data.cast("B")
    at = 0
    while at < len(data):
        to_step = _STEP - (start + at) % _STEP
        at += file.write(data[at : at + to_step]) or 0
