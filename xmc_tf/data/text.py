"""Texts in a file, one per line, which are read on access."""

import csv
import logging
import os
import shlex
import weakref
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeAlias, overload

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.common.progress import Progress
from xmc_tf.common.regular import existing_file

_LOG = logging.getLogger(__name__)
PIECE = 1 << 22
_HEAD = 1 << 16
_MOST_DAMAGED = 0.05  # share of damaged lines; more of them mean another encoding
_BOM = b"\xef\xbb\xbf"
_SEPARATORS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}
_LINES = 20  # from which a table is detected
_OF_TEXTS = {"text", "texts", "title", "titles", "abstract", "body", "content", "description", "document", "sentence"}
_OF_OTHERS = {"id", "uid", "doc_id", "label", "labels", "tag", "tags", "category", "categories", "class", "keywords"}

# The first bytes of files that are not texts, their kind, and the fix.
_NO_TEXTS = {
    b"\x1f\x8b": ("a gzip file", "unpack it first (gunzip)"),
    **{b"BZh%d1AY&SY" % level: ("a bzip2 file", "unpack it first (bunzip2)") for level in range(1, 10)},
    b"\xfd7zXZ": ("an xz file", "unpack it first (unxz)"),
    b"\x28\xb5\x2f\xfd": ("a zstd file", "unpack it first (unzstd)"),
    b"PK\x03\x04": ("a zip or .npz file", "pass matrices with -x or -y"),
    b"\x93NUMPY": ("a .npy file", "pass matrices with -x or -y"),
    b"\xff\xfe": ("text in UTF-16", "convert it: iconv -f UTF-16 -t UTF-8"),
    b"\xfe\xff": ("text in UTF-16", "convert it: iconv -f UTF-16 -t UTF-8"),
    b"\x7fELF": ("a program", "name the file that holds the texts"),
    b"%PDF-1": ("a PDF file", "extract its text first"),
    b"SQLite format 3\x00": ("an SQLite database", "export the texts, one per line"),
    b"\x89HDF\r\n": ("an HDF5 file", "export the texts, one per line"),
}


class TextFile:
    r"""The documents of a text file, one per line, without loading them into memory.

    Lines end in ``\n`` or ``\r\n``; the last line end is optional. An empty line is an empty document. Bytes that are
    not UTF-8 become U+FFFD, the replacement character, when a document is returned as `str`; `check` counts such
    documents. A byte order mark at the beginning is ignored.

    Example:
        >>> texts = TextFile("X.trn.txt")
        >>> texts[0]
        '…'
        >>> for lines in texts.batches(512):
        ...     tokenize(lines)

    Args:
        path: the file.
        name: its name in messages. With the default, a file that looks like a table raises an InputError.
    """

    def __init__(self, path: str | Path, *, name: str = "texts") -> None:
        self.path = existing_file(path, name)
        self.name = name
        if not self.path.stat().st_size:
            raise InputError(
                f"{name}: {self.path} is empty", expected="one document per line", received="a file of 0 bytes"
            )
        self._file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._file)
        self._state = self._state_now()
        head = self._read(0, 16)
        for magic, (kind, fix) in _NO_TEXTS.items():
            if head.startswith(magic):
                raise InputError(
                    f"{name}: {self.path} is not a text file", expected="text in UTF-8, one document per line",
                    received=kind, fix=fix,
                )  # fmt: skip
        if name == "texts":
            _refuse_table(self.path, self._read(0, _HEAD), name)
        # Line i is the bytes from offsets[i] to just before offsets[i + 1], including its line end.
        self._offsets = self._find_lines()
        if head.startswith(_BOM):
            self._offsets[0] = len(_BOM)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1:
                return [_decoded(line) for line in self.lines(start, stop)]
            return [self[i] for i in range(start, stop, step)]
        line = int(index) + (len(self) if index < 0 else 0)
        if not 0 <= line < len(self):
            raise IndexError(f"document {index} of {len(self)}")
        return _decoded(self._read(self._offsets[line], self._offsets[line + 1] - 1).removesuffix(b"\r"))

    def __iter__(self) -> Iterator[str]:
        for lines in self.batches(1024):
            yield from map(_decoded, lines)

    def __repr__(self) -> str:
        return f"TextFile({str(self.path)!r}, {len(self):,} documents)"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), name=self.name), (self.path,)

    @property
    def lengths(self) -> np.ndarray:
        """The number of bytes of each document, including its line end."""
        return np.diff(self._offsets)

    def lines(self, start: int = 0, stop: int | None = None) -> list[bytes]:
        """Return the documents from ``start`` to ``stop`` as bytes, without line ends.

        Args:
            start: number of the first document, from 0.
            stop: end of the range (exclusive); None: the end of the file.
        """
        stop = len(self) if stop is None else min(stop, len(self))
        start = max(start, 0)
        if start >= stop:
            return []
        block = self._read(self._offsets[start], self._offsets[stop] - 1)
        lines = block.split(b"\n")
        # Splitting a block is several times as fast as reading line by line.
        return [line.removesuffix(b"\r") for line in lines] if b"\r" in block else lines

    def batches(self, size: int, start: int = 0, stop: int | None = None) -> Iterator[list[bytes]]:
        """Yield the documents in lists of ``size``; the last list may be shorter.

        Args:
            size: number of documents in a list.
            start: number of the first document, from 0.
            stop: end of the range (exclusive); None: the end of the file.
        """
        stop = len(self) if stop is None else min(stop, len(self))
        for first in range(max(start, 0), stop, size):
            yield self.lines(first, min(first + size, stop))

    def check(self) -> int:
        """Count the documents that are not UTF-8 and warn about them; log the number of empty documents.

        Returns:
            The number of documents that are not UTF-8.

        Raises:
            InputError: so many documents are not UTF-8 that the file probably has another encoding.
        """
        wrong: list[int] = []
        empty = 0
        with Progress(f"checking {self.path.name}", len(self), "documents") as progress:
            first = 0
            while first < len(self):
                # As many lines as fill a piece, because lines may be long.
                stop = int(np.searchsorted(self._offsets, self._offsets[first] + PIECE))
                lines = self.lines(first, max(stop, first + 1))
                empty += lines.count(b"")
                if not _is_utf8(b"\n".join(lines)):
                    wrong += [first + i for i, line in enumerate(lines) if not _is_utf8(line)]
                progress.add(len(lines))
                first += len(lines)
        if len(wrong) > max(_MOST_DAMAGED * len(self), 10):
            raise InputError(
                f"{self.name}: {self.path} is not UTF-8",
                expected="UTF-8",
                received=f"{len(wrong):,} of {len(self):,} lines are not UTF-8, the first is line {wrong[0] + 1:,}",
                fix=f"convert it: iconv -f WINDOWS-1252 -t UTF-8 {shlex.quote(str(self.path))} > texts.txt",
            )
        if wrong:
            _LOG.warning(
                "%s: %s: %s of %s lines are not UTF-8, the first is line %s; unreadable characters "
                "become U+FFFD. If the file has another encoding, convert it with iconv",
                self.name, self.path, f"{len(wrong):,}", f"{len(self):,}", f"{wrong[0] + 1:,}",
            )  # fmt: skip
        if empty:
            _LOG.info("%s: %s: %s of %s lines are empty", self.name, self.path, f"{empty:,}", f"{len(self):,}")
        return len(wrong)

    def _state_now(self) -> tuple[int, int]:
        status = os.fstat(self._file)
        return status.st_size, status.st_mtime_ns

    def _read(self, start: int, stop: int) -> bytes:
        """Return a range of bytes, at most up to the end. A mapping would end the process if the file got shorter."""
        start, stop = int(start), min(int(stop), self._state[0])
        pieces = []
        while start < stop and (piece := os.pread(self._file, stop - start, start)):
            pieces.append(piece)
            start += len(piece)
        if start < stop or self._state_now() != self._state:
            raise InputError(
                f"{self.name}: {self.path} changed while it was read", expected="a file that nothing writes to",
                received=f"{self._state[0]:,} bytes at first, {self._state_now()[0]:,} bytes now",
                fix="run the command again when the file is complete",
            )  # fmt: skip
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _find_lines(self) -> np.ndarray:
        """Return the offset of each line, followed by the offset at which another line would begin."""
        size, found = self._state[0], [np.zeros(1, dtype=np.int64)]
        with Progress(f"reading {self.path.name}", size >> 20, "MB") as progress:
            for start in range(0, size, PIECE):
                array = np.frombuffer(self._read(start, start + PIECE), dtype=np.uint8)
                found.append(np.flatnonzero(array == ord("\n")) + (start + 1))
                progress.add(PIECE >> 20)
        offsets = np.concatenate(found)
        if offsets[-1] != size:  # add a virtual line end to the last line
            offsets = np.append(offsets, size + 1)
        return offsets


def _refuse_table(path: Path, head: bytes, name: str) -> None:
    """Raise an `InputError` if a file is clearly a table, judged by column names, or by file name and separators."""
    # The text after the last line end may be an incomplete line.
    whole = head[: head.rfind(b"\n") + 1] or head
    lines = whole.decode("utf-8-sig", errors="replace").splitlines()[:_LINES]
    if not lines:
        return
    named = path.suffix.lower() in (".csv", ".tsv")
    for separator, called in _SEPARATORS.items():
        rows = list(csv.reader(lines, delimiter=separator))
        columns = [column.strip().lower() for column in rows[0]] if rows else []
        if len(columns) < 2:
            continue
        usual = [not known.isdisjoint(columns) for known in (_OF_TEXTS, _OF_OTHERS)]
        is_header = all(len(column) <= 30 for column in columns) and (all(usual) or (named and any(usual)))
        is_even = len(rows) > 1 and len({len(row) for row in rows}) == 1
        if is_header or (named and is_even):
            raise InputError(
                f"{name}: {path} is a table, not a file of texts",
                expected="one document per line, and labels in a separate matrix",
                received=f"{len(columns)} columns separated by {called}, the first line: {lines[0][:80]!r}",
                fix=f"train on the table (xmc-tf train {path} -m MODEL), or write its text column to a file",
            )
    if named:
        _LOG.warning("%s: %s is read as text, one document per line, despite its name", name, path)


class LazyTexts(Sequence[str]):
    """Texts that are read on access, such as those in a database; they need no further checks."""


Texts: TypeAlias = TextFile | Sequence[str] | Sequence[bytes]
"""Documents: the lines of a file, or a list."""


class JoinedTexts(LazyTexts):
    """The concatenated texts of several sources, read on access. The last ``nr_names`` texts are names of labels."""

    def __init__(self, parts: Sequence[Texts], nr_names: int = 0) -> None:
        self.sources, self.nr_names = list(parts), nr_names
        self.parts = [FileRange(part, 0, len(part)) if isinstance(part, TextFile) else part for part in parts]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            first, last = _bounds(index, len(self))
            begins = accumulate(map(len, self.parts), initial=0)
            return JoinedTexts(
                [part[max(first - at, 0) : max(last - at, 0)] for part, at in zip(self.parts, begins, strict=False)]
            )
        index = range(len(self))[index]  # negative numbers count from the end
        for part in self.parts:
            if index < len(part):
                return _decoded(part[index])
            index -= len(part)

    def __iter__(self) -> Iterator[str]:
        for part in self.parts:
            yield from map(_decoded, part)


def without_names(texts: Texts) -> Texts:
    """Return the texts of documents, without the names of labels that follow them; all texts if all are names."""
    count = len(texts) - getattr(texts, "nr_names", 0)
    return texts if count in (0, len(texts)) else texts[:count]


def kinds_of_texts(texts: Texts) -> str:
    """Return what the texts are, for messages that count them: "documents", or "documents and names"."""
    return "documents and names" if getattr(texts, "nr_names", 0) else "documents"


class FileRange(LazyTexts):
    """The texts of a file from ``first`` to ``last`` (exclusive); slicing does not load them."""

    def __init__(self, file: TextFile, first: int, last: int) -> None:
        self._file, self._first, self._last = file, first, last

    def __len__(self) -> int:
        return self._last - self._first

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            first, last = _bounds(index, len(self))
            return FileRange(self._file, self._first + first, self._first + max(first, last))
        return self._file[self._first + range(len(self))[index]]

    def __iter__(self) -> Iterator[str]:
        for lines in self.batches(1024):
            yield from map(_decoded, lines)

    def batches(self, size: int) -> Iterator[list[bytes]]:
        """Yield the texts in lists of ``size``."""
        return self._file.batches(size, self._first, self._last)


def _bounds(index: slice, length: int) -> tuple[int, int]:
    first, last, step = index.indices(length)
    if step != 1:
        raise ValueError("the step of a slice of texts must be 1")
    return first, last


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _decoded(document: str | bytes) -> str:
    return document.decode("utf-8", errors="replace") if isinstance(document, bytes) else document
