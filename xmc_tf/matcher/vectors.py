"""The embeddings of all documents in one file, of which every rank writes its part; computed again for each level."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from xmc_tf.common.progress import Progress
from xmc_tf.data import TokenStore
from xmc_tf.data.row_file import RowFile
from xmc_tf.encoder import encode_documents
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks
from xmc_tf.ranks.partition import balanced


def own_documents(store: TokenStore, communicator: Communicator) -> tuple[int, int]:
    """Return this rank's range of the documents; the ranges have about the same number of tokens."""
    return balanced(store.document_lengths + 1, communicator.size).range(communicator.rank)


def vectors_of_all(encoder: Any, store: TokenStore, path: Path, communicator: Communicator) -> np.ndarray:
    """Return the embeddings of all documents, mapped into memory: the mean of a document's windows.

    Call it on all ranks.

    Args:
        encoder: the encoder, the same on all ranks.
        store: tokens of the documents.
        path: the file, on a disk that all hosts share; replaced if it exists.
        communicator: the ranks.
    """
    low, high = own_documents(store, communicator)

    def make() -> None:
        if communicator.rank == 0:
            path.parent.mkdir(parents=True, exist_ok=True)
            RowFile.create(path, (store.nr_documents, encoder.dim))

    def fill() -> None:
        # Only the first rank shows its progress.
        quiet_s = 2.0 if communicator.rank == 0 else math.inf
        with Progress("encoding", high - low, "documents", quiet_s=quiet_s) as progress:
            vectors = encode_documents(encoder, store, np.arange(low, high), progress=progress)
        with RowFile(path) as file:
            file.write(low, vectors)
            file.sync()

    run_on_all_ranks(communicator, make)
    run_on_all_ranks(communicator, fill)
    communicator.barrier()
    return np.load(path, mmap_mode="r")
