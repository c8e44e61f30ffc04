"""Embeddings of many documents, computed in batches with little padding."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Protocol

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.common.progress import Progress
from xmc_tf.data.tokens import TokenStore
from xmc_tf.data.windows import WindowEmbeddings

if TYPE_CHECKING:
    from xmc_tf.encoder.encoder import Encoder

WINDOWS_AT_ONCE = 1 << 16  # windows whose embeddings are in memory at once


class TextEncoder(Protocol):
    """The interface of the encoders: :class:`Encoder` in TensorFlow and :class:`OnnxEncoder` in ONNX Runtime."""

    dim: int
    max_length: int

    @property
    def batch_tokens(self) -> int:
        """Number of tokens per batch that is fastest on this machine."""

    def embed(self, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Return the unnormalized embeddings of documents: float32 [documents, dim]."""


def encode_documents(
    encoder: TextEncoder,
    store: TokenStore,
    rows: np.ndarray | Sequence[int] | None = None,
    *,
    batch_tokens: int | None = None,  # including padding; None: chosen for the device
    combine: str = "mean",  # or "max": how the embeddings of a document's windows become one
    progress: Progress | None = None,  # may also count other documents
) -> np.ndarray:
    """Compute the unnormalized embeddings of documents on this rank: float32 [documents, dim]."""
    rows = np.arange(store.nr_documents) if rows is None else np.asarray(rows, np.int64)
    out = np.empty((len(rows), encoder.dim), np.float32)
    with nullcontext(progress) if progress is not None else Progress("encoding", len(rows), "documents") as shown:
        for low, high in groups_of_documents(store, rows):
            windows = encode_windows(encoder, store, rows[low:high], batch_tokens=batch_tokens, progress=shown)
            out[low:high] = windows.of_documents(combine)
    return out


def encode_windows(
    encoder: TextEncoder,
    store: TokenStore,
    rows: np.ndarray,
    *,
    batch_tokens: int | None = None,
    progress: Progress | None = None,
) -> WindowEmbeddings:
    windows, splits = store.windows_of(rows)
    lengths = store.lengths[windows]
    longest = int(lengths.max(initial=0))
    if longest > encoder.max_length:
        raise InputError(
            f"windows of {longest} tokens are too long for the encoder",
            expected=f"at most {encoder.max_length}",
            fix="tokenize them with a smaller maximum length (truncate_length)",
        )
    last = np.zeros(len(windows), bool)  # a document counts as done with its last window
    last[splits[1:] - 1] = True
    out = np.empty((len(windows), encoder.dim), np.float32)
    with nullcontext(progress) if progress is not None else Progress("encoding", len(rows), "documents") as shown:
        for batch in _batches(lengths, batch_tokens or encoder.batch_tokens):
            ids, mask = store.padded(windows[batch], pad_id=0, to=max(int(lengths[batch[0]]), 1))
            out[batch] = encoder.embed(ids, mask)
            shown.add(int(last[batch].sum()))
    return WindowEmbeddings(out, splits)


def frozen_states(
    encoder: "Encoder", store: TokenStore, windows: np.ndarray, progress: Progress | None = None
) -> np.ndarray:
    """Return the output of the encoder's frozen layers for the tokens of some windows: [tokens, width]."""
    lengths = store.lengths[windows].astype(np.int64)
    starts = np.cumsum(lengths) - lengths
    parts, places = [], []
    for batch in _batches(lengths, encoder.batch_tokens):
        ids, mask = store.padded(windows[batch], pad_id=0, to=max(int(lengths[batch[0]]), 1))
        parts.append(encoder.frozen_states(ids, mask)[mask > 0])
        places.append((starts[batch][:, None] + np.arange(mask.shape[1]))[mask > 0])
        if progress is not None:
            progress.add(len(batch))
    out = np.empty((int(lengths.sum()), encoder.config.width), parts[0].dtype)
    for place, part in zip(places, parts, strict=True):
        out[place] = part
    return out


def groups_of_documents(store: TokenStore, rows: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield ranges of ``rows``, each small enough for the embeddings of its windows to fit into memory."""
    splits = store.windows_of(rows)[1]
    low = 0
    while low < len(splits) - 1:
        high = max(int(np.searchsorted(splits, splits[low] + WINDOWS_AT_ONCE, side="right")) - 1, low + 1)
        yield low, high
        low = high


def _batches(lengths: np.ndarray, batch_tokens: int) -> Iterator[np.ndarray]:
    """Yield batches of windows of similar length, the longest first, so that a lack of memory shows immediately."""
    order = np.argsort(-lengths.astype(np.int64), kind="stable")
    first = 0
    while first < len(order):
        size = max(batch_tokens // max(int(lengths[order[first]]), 1), 1)
        yield order[first : first + size]
        first += size
