"""The vectors of many documents, with as little padding as may be."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext

import numpy as np
import tensorflow as tf

from xmc_tf.common.errors import InputError
from xmc_tf.common.process.forks import check_not_forked
from xmc_tf.common.progress import Progress
from xmc_tf.data.tokens import TokenStore
from xmc_tf.encoder.encoder import Encoder

# A batch whose intermediate values fit a processor's cache is a quarter faster than a larger one; a GPU wants more.
_ON_CPU, _ON_GPU = 4096, 32768


def encode_documents(
    encoder: Encoder,
    store: TokenStore,
    rows: np.ndarray | Sequence[int] | None = None,
    *,
    batch_tokens: int | None = None,
    out: np.ndarray | None = None,
    training: bool = False,
    progress: Progress | None = None,
) -> np.ndarray:
    """The vectors of documents, as they are pooled, not normalised; local to this rank.

    Documents of like length go together, so that nearly nothing is padding. The vectors do not depend on which
    documents go together, but for rounding.

    Args:
        encoder: what encodes.
        store: the documents' tokens.
        rows: which documents, in which order; None for all.
        batch_tokens: most tokens of a batch, padding included; None for what suits the device.
        out: float32 [documents, dim] to write to, such as a memory-mapped file; None for a new array.
        training: whether dropout takes place.
        progress: of more than these documents, which are counted there; None for one of their own.

    Returns:
        ``out``, or the new array.
    """
    check_not_forked("embeddings of texts")
    if batch_tokens is None:
        batch_tokens = _ON_GPU if tf.config.list_logical_devices("GPU") else _ON_CPU
    rows = np.arange(len(store)) if rows is None else np.asarray(rows, np.int64)
    shape = (len(rows), encoder.dim)
    if out is None:
        out = np.empty(shape, np.float32)
    elif out.shape != shape or out.dtype != np.float32:
        raise InputError(
            "the array for the embeddings does not fit",
            expected=f"float32 of shape {shape}",
            received=f"{out.dtype} of shape {out.shape}",
        )
    lengths = store.lengths[rows]
    longest = int(lengths.max(initial=0))
    if longest > encoder.max_length:
        raise InputError(
            f"documents of {longest} tokens are too long for the encoder",
            expected=f"at most {encoder.max_length}",
            fix="tokenize them with a smaller maximum length (truncate_length)",
        )
    with nullcontext(progress) if progress is not None else Progress("encoding", len(rows), "documents") as shown:
        for batch in _batches(lengths, batch_tokens):
            ids, mask = store.padded(rows[batch], pad_id=0, to=max(int(lengths[batch[0]]), 1))
            out[batch] = encoder.in_graph(tf.constant(ids), tf.constant(mask), training).numpy()
            shown.add(len(batch))
    return out


def _batches(lengths: np.ndarray, batch_tokens: int) -> Iterator[np.ndarray]:
    """Positions in batches of like length, the longest first: if memory runs out, then at once."""
    order = np.argsort(-lengths.astype(np.int64), kind="stable")
    first = 0
    while first < len(order):
        size = max(batch_tokens // max(int(lengths[order[first]]), 1), 1)
        yield order[first : first + size]
        first += size
