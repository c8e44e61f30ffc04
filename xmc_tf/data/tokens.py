from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.common.folders.placing import placed_folder
from xmc_tf.data.token_files import TOKENS, TokenWriter, open_files


class TokenStore:
    """The tokens of many documents, mapped into memory. A row is a window: a document, or a part of a long one."""

    def __init__(
        self,
        ids: np.ndarray,
        lengths: np.ndarray,
        header: dict[str, Any],
        folder: Path,
        windows: np.ndarray | None = None,
    ) -> None:
        self._ids, self.lengths, self.folder = ids, lengths, folder
        self.fingerprint: str = header["fingerprint"]
        self.about: dict[str, Any] = header["about"]
        self._starts = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=self._starts[1:])
        counts = np.ones(len(lengths), np.int32) if windows is None else windows
        self.splits = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])

    def __len__(self) -> int:
        """Return the number of windows."""
        return len(self.lengths)

    @property
    def nr_documents(self) -> int:
        return len(self.splits) - 1

    @property
    def document_lengths(self) -> np.ndarray:
        """The number of tokens of each document, int64."""
        return np.diff(self._starts[self.splits])

    def document_of(self, windows: np.ndarray) -> np.ndarray:
        """Return the document of each of these windows."""
        if self.nr_documents == len(self):
            return windows
        return np.searchsorted(self.splits, windows, side="right") - 1

    def windows_of(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the windows of documents, in their order, and where each document's windows begin among them."""
        self._check_numbers(documents, "document", self.nr_documents)
        counts = self.splits[documents + 1] - self.splits[documents]
        splits = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        return np.arange(splits[-1]) + np.repeat(self.splits[documents] - splits[:-1], counts), splits

    def __getitem__(self, row: int) -> np.ndarray:
        """Return the ids of one window, int32."""
        if not 0 <= row < len(self):
            raise IndexError(f"window {row} of {len(self)}")  # also ends a loop over the store
        return self._ids[self._starts[row] : self._starts[row + 1]].astype(np.int32)

    def __repr__(self) -> str:
        windows = "" if self.nr_documents == len(self) else f"{len(self):,} windows, "
        return f"TokenStore({self.nr_documents:,} documents, {windows}{int(self._starts[-1]):,} tokens, {self.folder})"

    @property
    def dtype(self) -> np.dtype:
        """The type of the ids on disk: uint16 if they fit, else int32."""
        return self._ids.dtype

    def padded(
        self, rows: np.ndarray | Sequence[int], *, pad_id: int, to: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return ids and mask of windows, int32 [windows, width], padded on the right."""
        rows = np.asarray(rows, np.int64)
        self._check_numbers(rows, "window", len(self))
        lengths = self.lengths[rows].astype(np.int64)
        longest = int(lengths.max(initial=0))
        width = longest if to is None else to
        if longest > width:
            raise InputError(
                f"document {rows[lengths.argmax()]} does not fit into rows of {width} tokens",
                expected=f"a width of {longest} or more",
                received=str(width),
                fix="tokenize again with a smaller maximum length; truncation here would remove the last token",
            )
        inside = np.arange(width) < lengths[:, None]
        # The position of each token in the file: consecutive within a document, with jumps between documents.
        ends = np.cumsum(lengths)
        places = np.arange(int(lengths.sum())) + np.repeat(self._starts[rows] - (ends - lengths), lengths)
        ids = np.full(inside.shape, pad_id, np.int32)
        ids[inside] = self._ids[places]
        return ids, inside.astype(np.int32)

    def _check_numbers(self, numbers: np.ndarray, kind: str, count: int) -> None:
        if numbers.size and (numbers.min() < 0 or numbers.max() >= count):
            wrong = numbers[(numbers < 0) | (numbers >= count)][0]
            raise InputError(f"{self.folder} has no {kind} {wrong}", expected=f"0 to {count - 1}", received=str(wrong))

    @staticmethod
    @contextmanager
    def create(
        folder: str | Path, about: dict[str, Any] | None = None, vocabulary_size: int = 1 << 16
    ) -> Iterator[TokenWriter]:
        """Yield a writer; the store replaces an older one only if the block ends without an error."""
        with placed_folder(folder, TOKENS) as part, (part / "ids.bin").open("wb") as file:
            writer = TokenWriter(file, vocabulary_size)
            yield writer
            writer.finish(part, about or {})

    @classmethod
    def open(cls, folder: str | Path, *, verify: bool = True) -> Self:
        """Map a store; ``verify`` reads all ids to compare checksums, which takes about a second per gigabyte."""
        ids, lengths, windows, header = open_files(Path(folder), verify)
        return cls(ids, lengths, header, Path(folder), windows)
