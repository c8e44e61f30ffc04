"""Compute the documents' embeddings into one file, block by block on all ranks; an interrupted run can be resumed."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xmc_tf.common.progress import Progress
from xmc_tf.pipeline.row_blocks import RowBlocks
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.store.arrays import Stream, write_npy
from xmc_tf.store.files import atomic_file
from xmc_tf.store.outputs import EMBEDDINGS

if TYPE_CHECKING:
    from xmc_tf.data import TokenStore
    from xmc_tf.encoder import Encoder

BLOCK = 256  # documents, the unit of progress; not a rank's share, because the next run may have more or fewer ranks
GROUP = 4096  # documents encoded and written together, so that there are enough of similar length


def embed_documents(
    encoder: "Encoder",
    store: "TokenStore",
    folder: Path,  # shared by all ranks
    communicator: Communicator,
    *,
    length: float = 1.0,
    combine: str = "mean",  # or "max", over the windows of a document
    batch_tokens: int = 16384,
) -> dict[str, Any]:
    """Write all embeddings, scaled to the same length, to ``folder/E.npy``. All ranks must call this function.

    If the file is incomplete, only the missing blocks are computed.
    """
    documents, dim = store.nr_documents, encoder.dim
    bounds = np.minimum(np.arange(-(-documents // BLOCK) + 1) * BLOCK, documents)
    blocks = RowBlocks(folder / "E.npy", bounds, dim, np.diff(bounds), group=GROUP // BLOCK)

    def encode(some: np.ndarray, progress: Progress) -> np.ndarray:
        from xmc_tf.encoder import encode_documents

        rows = np.concatenate([np.arange(*bounds[block : block + 2]) for block in some])
        vectors = encode_documents(
            encoder, store, rows, batch_tokens=batch_tokens, combine=combine, progress=progress
        )  # fmt: skip
        return rows_of_length(length, vectors)

    blocks.fill(encode, communicator)
    return {"dim": dim, "summary": f"{documents:,} × {dim}"}


def rows_of_length(length: float, vectors: np.ndarray) -> np.ndarray:
    """Return the rows scaled to the given length; rows of zeros stay zero."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True) / np.float32(length)
    return np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)


def copy_of_length_one(vectors: np.ndarray, path: Path) -> None:
    """Write embeddings scaled to length 1 to a new ``.npy`` file, one group of rows at a time."""
    rows = (rows_of_length(1.0, np.asarray(vectors[low : low + GROUP])) for low in range(0, len(vectors), GROUP))
    with atomic_file(path) as part:
        write_npy(part, Stream(np.dtype(np.float32), vectors.shape, rows), EMBEDDINGS)
