"""Tokenized documents, stored in the files ids.npy, lengths.npy, windows.npy (for long documents) and store.json."""

import copy
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np

from xmc_tf.store.arrays import GrowingNpy, read_npy
from xmc_tf.store.checksums import Records, checksum_of, record_files
from xmc_tf.store.kinds import FolderKind, read_header
from xmc_tf.store.publishing import publish

Tokens = tuple[Sequence[int], float]
"""A text's token ids without special tokens, after truncation, and the number of tokens before it."""
_FORMAT = "xmc_tf.data.TokenStore"
_VERSION = 1
_KIND = FolderKind(
    "a store of tokens",
    header="store.json",
    recognises=lambda header: header.get("format") == _FORMAT,
    parts=r"store\.json|ids\.npy|lengths\.npy|windows\.npy",
)
_NARROW: np.dtype = np.dtype("<u2")
_WIDE: np.dtype = np.dtype("<i4")
_FIX = "copy the whole folder again, or tokenize again"


class TokenWriter:
    """Writes documents one after the other; created by ``TokenStore.create``."""

    def __init__(self, ids: GrowingNpy) -> None:
        self._ids = ids
        self._digest = hashlib.sha256()
        self._lengths: list[np.ndarray] = []
        self._windows: list[np.ndarray] = []

    def write(self, windows: Iterable[Sequence[int] | np.ndarray], counts: np.ndarray | None = None) -> None:
        """Append documents: the token ids of each window, and the number of windows of each document (default: one)."""
        parts = [np.asarray(window) for window in windows]
        counts = np.ones(len(parts), np.int32) if counts is None else np.asarray(counts, np.int32)
        lengths = np.array([part.size for part in parts], np.int32)
        ids = np.concatenate([part for part in parts if part.size] or [np.empty(0, np.int64)]).astype(np.int64)
        # The fingerprint does not depend on the type of the ids on disk or as passed.
        self._digest.update(ids.astype(_WIDE).tobytes())
        self._lengths.append(lengths)
        self._windows.append(counts)
        self._ids.append(ids.astype(self._ids.dtype))

    def finish(self, folder: Path, about: dict[str, Any]) -> None:
        """Write the remaining files of the folder."""
        self._ids.complete()
        lengths, windows = (np.concatenate([np.empty(0, np.int32), *some]) for some in (self._lengths, self._windows))
        # Without long documents, the files equal those of truncated documents.
        arrays = {"lengths.npy": lengths} | ({"windows.npy": windows} if len(windows) < len(lengths) else {})
        for name, array in arrays.items():
            self._digest.update(array.astype(_WIDE).tobytes())
            np.save(folder / name, array, allow_pickle=False)
        header = {
            "format": _FORMAT,
            "version": _VERSION,
            "fingerprint": self._digest.hexdigest()[:32],
            "files": record_files(folder),
            "about": about,
        }
        header["checksum"] = checksum_of(header)
        (folder / "store.json").write_text(json.dumps(header, indent=1) + "\n", encoding="utf-8")


class TokenStore:
    """The tokens of many documents, memory-mapped. A row is a window: a whole document, or a part of a long one."""

    def __init__(
        self, ids: np.ndarray, lengths: np.ndarray, header: dict[str, Any], folder: Path,
        windows: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        self._ids, self.lengths, self.folder = ids, lengths, folder
        self.fingerprint: str = header["fingerprint"]  # equal for stores with the same documents
        self.about: dict[str, Any] = header["about"]
        self._states: np.ndarray | None = None
        self._starts = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=self._starts[1:])
        counts = np.ones(len(lengths), np.int32) if windows is None else windows
        # The first window of each document, then the number of windows.
        self.splits = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])

    def __len__(self) -> int:
        """Return the number of windows."""
        return len(self.lengths)

    @property
    def nr_documents(self) -> int:
        return len(self.splits) - 1

    @property
    def document_lengths(self) -> np.ndarray:
        """The number of tokens of each document, as int64."""
        return np.diff(self._starts[self.splits])

    def document_of(self, windows: np.ndarray) -> np.ndarray:
        """Return the number of the document to which each window belongs."""
        return windows if self.nr_documents == len(self) else np.searchsorted(self.splits, windows, side="right") - 1

    def windows_of(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the window numbers of some documents, document by document, and the row splits between documents."""
        counts = self.splits[documents + 1] - self.splits[documents]
        splits = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        return np.arange(splits[-1]) + np.repeat(self.splits[documents] - splits[:-1], counts), splits

    def __getitem__(self, row: int) -> np.ndarray:
        """Return the token ids of one window as int32."""
        if not 0 <= row < len(self):
            raise IndexError(f"window {row} of {len(self)}")  # also ends a loop over the store
        return self._ids[self._starts[row] : self._starts[row + 1]].astype(np.int32)

    def __repr__(self) -> str:
        windows = "" if self.nr_documents == len(self) else f"{len(self):,} windows, "
        return f"TokenStore({self.nr_documents:,} documents, {windows}{int(self._starts[-1]):,} tokens, {self.folder})"

    @property
    def dtype(self) -> np.dtype:
        """The type of the token ids on disk: uint16 if large enough, else int32."""
        return self._ids.dtype

    def padded(
        self, rows: np.ndarray | Sequence[int], *, pad_id: int, to: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the token ids and the mask of windows: int32 [windows, width], padded on the right.

        In a store with hidden states, these take the place of the ids: [windows, width, dim], 0 at padding.
        """
        rows = np.asarray(rows, np.int64)
        lengths = self.lengths[rows].astype(np.int64)
        width = int(lengths.max(initial=0)) if to is None else to
        inside = np.arange(width) < lengths[:, None]
        # The position of each token in the file: consecutive within a document, with jumps between documents.
        ends = np.cumsum(lengths)
        places = np.arange(int(lengths.sum())) + np.repeat(self._starts[rows] - (ends - lengths), lengths)
        if self._states is not None:
            states = np.zeros((*inside.shape, self._states.shape[1]), self._states.dtype)
            states[inside] = self._states[places]
            return states, inside.astype(np.int32)
        ids = np.full(inside.shape, pad_id, np.int32)
        ids[inside] = self._ids[places]
        return ids, inside.astype(np.int32)

    def with_states(self, states: np.ndarray) -> Self:
        """Return the same documents, of which ``padded`` gives hidden states ([tokens, width]) in place of ids."""
        out = copy.copy(self)
        out._states = states
        return out

    @staticmethod
    @contextmanager
    def create(
        folder: str | Path, about: dict[str, Any] | None = None, vocabulary_size: int = 1 << 16
    ) -> Iterator[TokenWriter]:
        """Yield a writer. The new store replaces an existing one only if the block ends without an error."""
        dtype = _NARROW if vocabulary_size <= 1 << 16 else _WIDE
        with publish(folder, _KIND) as part, GrowingNpy(part / "ids.npy", dtype) as ids:
            writer = TokenWriter(ids)
            yield writer
            writer.finish(part, about or {})

    @classmethod
    def open(cls, folder: str | Path, *, verify: bool = True) -> Self:
        """Memory-map a store. ``verify`` compares checksums, which takes about a second per gigabyte."""
        folder = Path(folder)
        header = read_header(folder / "store.json", _FORMAT, _VERSION, of="a token store", fix=_FIX)
        records = Records.read(folder, "store.json")
        assert records is not None
        records.check(records.files if verify else records.files.keys() - {"ids.npy"})
        arrays = {name: read_npy(folder / name, name="tokens") for name in records.files}
        return cls(arrays["ids.npy"], arrays["lengths.npy"], header, folder, arrays.get("windows.npy"))
