"""Compute the documents' embeddings into one file, block by block on all ranks; an interrupted run can be resumed."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xmc_tf.common.files.atomic import atomic_file
from xmc_tf.common.files.marks import EMBEDDINGS
from xmc_tf.common.progress import Progress
from xmc_tf.data.npz.writing import RowFile, padded_head
from xmc_tf.pipeline.waiting import on_first_rank
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks

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
    path, shape = folder / "E.npy", (store.nr_documents, encoder.dim)
    done = on_first_rank(communicator, lambda: _prepare(path, shape))
    waiting = np.setdiff1d(np.arange(-(-shape[0] // BLOCK)), done)
    # Ranks take blocks in turn, so that all ranks get long documents, whatever the order of the documents.
    mine = waiting[communicator.rank :: communicator.size]

    def encode(rows: np.ndarray, progress: Progress) -> np.ndarray:
        from xmc_tf.encoder import encode_documents

        vectors = encode_documents(
            encoder, store, rows, batch_tokens=batch_tokens, combine=combine, progress=progress
        )  # fmt: skip
        return rows_of_length(length, vectors)

    run_on_all_ranks(communicator, lambda: _encode_blocks(encode, shape[0], path, mine, communicator.rank))
    communicator.barrier()
    return {"dim": shape[1], "summary": f"{shape[0]:,} × {shape[1]}"}


def rows_of_length(length: float, vectors: np.ndarray) -> np.ndarray:
    """Return the rows scaled to the given length; rows of zeros stay zero."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True) / np.float32(length)
    return np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)


def copy_of_length_one(vectors: np.ndarray, path: Path) -> None:
    """Write embeddings scaled to length 1 to a new ``.npy`` file, one group of rows at a time."""
    with atomic_file(path) as part, part.open("wb") as file:
        file.write(padded_head(np.dtype(np.float32), vectors.shape, 0, len(EMBEDDINGS)))
        for low in range(0, len(vectors), GROUP):
            rows = rows_of_length(1.0, np.asarray(vectors[low : low + GROUP]))
            np.ascontiguousarray(rows, np.float32).tofile(file)


def _prepare(path: Path, shape: tuple[int, int]) -> np.ndarray:
    """Create the file unless it already contains blocks of an earlier run; return the numbers of these blocks."""
    records = list(path.parent.glob("done.*"))
    done = sorted({block for record in records for block in _blocks_in(record)})
    if not path.exists() or not done:
        for record in records:
            record.unlink()
        RowFile.create(path, shape)
        return np.zeros(0, np.int64)
    return np.array(done, np.int64)


def _blocks_in(record: Path) -> Iterator[int]:
    """Yield the blocks that a rank has recorded as done; an incomplete last line is ignored."""
    for line in record.read_text(encoding="ascii").split("\n")[:-1]:
        if line.isdigit():
            yield int(line)


def _encode_blocks(
    encode: Callable[[np.ndarray, Progress], np.ndarray], nr_documents: int, path: Path, blocks: np.ndarray, rank: int
) -> None:
    with RowFile(path) as file, (path.parent / f"done.{rank}").open("a", encoding="ascii") as record:
        record.write("\n")  # ends an incomplete last line
        groups = np.array_split(blocks, max(1, -(-len(blocks) * BLOCK // GROUP)))
        todo = int(sum(min(BLOCK, nr_documents - int(block) * BLOCK) for block in blocks))
        # Only rank 0 shows its progress.
        with Progress("encoding", todo, "documents", quiet_s=2.0 if rank == 0 else math.inf) as progress:
            for some in groups:
                rows = [np.arange(block * BLOCK, min((block + 1) * BLOCK, nr_documents)) for block in some]
                if not rows:
                    continue
                vectors = encode(np.concatenate(rows), progress)
                start = 0
                for part in rows:
                    file.write(int(part[0]), vectors[start : start + len(part)])
                    start += len(part)
                file.sync()
                record.writelines(f"{block}\n" for block in some)
                record.flush()
