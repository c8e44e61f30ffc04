"""Texts of several sources, one after the other."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import overload

from xmc_tf.data.text import LazyTexts, TextFile, Texts

_AT_ONCE = 1024


class JoinedTexts(LazyTexts):
    """The texts of several sources, one after the other, read when they are used.

    Args:
        parts: the texts of each source.
    """

    def __init__(self, parts: Sequence[Texts]) -> None:
        self.sources = list(parts)
        self.parts = [_Lines(part, 0, len(part)) if isinstance(part, TextFile) else part for part in parts]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> "JoinedTexts": ...

    def __getitem__(self, index: int | slice) -> "str | JoinedTexts":
        if isinstance(index, slice):
            first, last, step = index.indices(len(self))
            if step != 1:
                raise ValueError("the step of a slice of texts must be 1")
            begins = accumulate(map(len, self.parts), initial=0)
            return JoinedTexts(
                [part[max(first - at, 0) : max(last - at, 0)] for part, at in zip(self.parts, begins, strict=False)]
            )
        for part in self.parts:
            if index < len(part):
                return _text(part[index])
            index -= len(part)
        raise IndexError("there is no such document")

    def __iter__(self) -> Iterator[str]:
        for part in self.parts:
            yield from map(_text, part)


class _Lines(LazyTexts):
    """Some lines of a file, which slices do not load."""

    def __init__(self, file: TextFile, first: int, last: int) -> None:
        self._file, self._first, self._last = file, first, last

    def __len__(self) -> int:
        return self._last - self._first

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> "_Lines": ...

    def __getitem__(self, index: int | slice) -> "str | _Lines":
        if isinstance(index, slice):
            first, last, _ = index.indices(len(self))
            return _Lines(self._file, self._first + first, self._first + max(first, last))
        return self._file[self._first + index]

    def __iter__(self) -> Iterator[str]:
        for lines in self._file.batches(_AT_ONCE, self._first, self._last):
            yield from map(_text, lines)


def _text(document: str | bytes) -> str:
    return document.decode("utf-8", errors="replace") if isinstance(document, bytes) else document
