"""The search layout of weights, in memory or memory-mapped from disk: models load at once, and processes share them.

search/search.json   numbers of weights and features, and checksums of the other two files
search/chunks.npy    number of rows and number of words of each chunk
search/words.npy     the words of all chunks

Rankers with many weights have only this form. Training on large data writes it cluster by cluster.
"""

import json
import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.sparse import csc_matrix

from xmc_tf.common.array_views import kernel_view
from xmc_tf.common.errors import InputError
from xmc_tf.common.threads import thread_count
from xmc_tf.rankers.kernels.layout import SHARE, VERSION, Chunks, fill, measure, padded, unpack
from xmc_tf.rankers.level import Level
from xmc_tf.rankers.query_arrays import sparse_arrays
from xmc_tf.store.arrays import GrowingNpy, padded_head, read_npy
from xmc_tf.store.checksums import Records, record_files
from xmc_tf.store.kinds import read_header

_FIX = "copy the model again from where it is intact, or train it again"


class ChunkTable(NamedTuple):
    """Number of rows and number of words of each chunk."""

    rows: np.ndarray  # number of rows
    lengths: np.ndarray  # number of words


def build_chunks(
    levels: Sequence[Level], nr_sparse: int, nr_dense: int, threads: int = 1,
    room: Callable[[int], np.ndarray] = lambda count: np.zeros(count, np.int32),
) -> tuple[ChunkTable, Chunks]:  # fmt: skip
    """Arrange the weights of all levels for search; ``room(count)`` returns an int32 array of ``count`` zeros."""
    threads = thread_count(threads)
    starts = np.cumsum([0, *(level.clusters.shape[1] for level in levels)])
    rows, lengths = (np.zeros(int(starts[-1]), np.int64) for _ in range(2))
    table = ChunkTable(rows, lengths)
    places = [slice(int(a), int(b)) for a, b in pairwise(starts)]
    works = []
    for level, own in zip(levels, places, strict=True):
        clusters = kernel_view(level.clusters.indptr, np.int64), kernel_view(level.clusters.indices, np.int32)
        arrays = sparse_arrays(level.weights)
        for part in chunk_ranges(own.stop - own.start, threads):
            works.append((level.bias, own, arrays, (*clusters, nr_sparse, nr_dense, SHARE, *part)))
    with ThreadPoolExecutor(threads) as pool:
        jobs: list[tuple[Any, ...]] = [
            (measure, *arrays[:2], *sizes, rows[own], lengths[own]) for _, own, arrays, sizes in works
        ]
        _all_done(pool, jobs)
        words = room(int(lengths.sum()))
        chunks = chunks_of(levels, table, words)
        jobs = [
            (
                fill, *arrays, *sizes, bias, chunks.start[own.start : own.stop + 1], words, chunks.weights,
                chunks.bytes,
            )
            for bias, own, arrays, sizes in works
        ]  # fmt: skip
        _all_done(pool, jobs)
    return table, chunks


def chunks_of(levels: Sequence[Level], table: ChunkTable, words: np.ndarray) -> Chunks:
    """Return the chunks of levels without reading their weights."""
    child_counts = np.concatenate([np.diff(level.clusters.indptr) for level in levels])
    return Chunks(
        level_start=np.cumsum([0, *(level.clusters.shape[1] for level in levels)]),
        child_start=np.concatenate([[0], np.cumsum(child_counts, dtype=np.int64)]),
        children=np.concatenate([level.clusters.indices for level in levels]).astype(np.int32, copy=False),
        start=np.concatenate([[0], np.cumsum(table.lengths)]), rows=table.rows, words=words,
        weights=words.view(np.float32), bytes=words.view(np.uint8),
        widest=int(padded(int(child_counts.max(initial=1)))),
    )  # fmt: skip


def with_children(chunks: Chunks, levels: Sequence[Level], kept: Sequence[Level]) -> Chunks:
    """Return chunks with the same weights, in which a search finds only the nodes in ``kept``."""
    children = []
    for level, some in zip(levels, kept, strict=True):
        here = np.zeros(level.clusters.shape[0], bool)
        here[some.clusters.indices] = True
        own = level.clusters.indices
        children.append(np.where(here[own], own, -1).astype(np.int32))
    return chunks._replace(children=np.concatenate(children))


def chunk_ranges(count: int, parts: int) -> list[tuple[int, int]]:
    """Split ``count`` chunks into at most ``parts`` ranges of about equal size, and return their bounds."""
    bounds = np.linspace(0, count, min(parts, count) + 1).astype(int)
    return [(int(a), int(b)) for a, b in pairwise(bounds)]


def _all_done(pool: ThreadPoolExecutor, jobs: Sequence[tuple[Any, ...]]) -> None:
    for future in [pool.submit(*job) for job in jobs]:
        future.result()


_FORMAT = "xmc_tf.search"
_HEADER, _TABLE, _WORDS = "search.json", "chunks.npy", "words.npy"
SEARCH = "search"
_BLOCK = 1 << 20  # bytes of zeros that are written at a time
FEWEST_WEIGHTS = 1 << 20  # smaller models are arranged in a fraction of a second, and their folders stay small


class StoredSearch(NamedTuple):
    """A search layout on disk, opened for reading."""

    folder: Path
    nr_weights: list[int]  # of each level
    nr_sparse: int
    nr_dense: int
    table: ChunkTable
    words: np.ndarray  # the words of all chunks, mapped

    def chunks(self, levels: Sequence[Level]) -> Chunks:
        """Return the chunks; ``levels`` are the levels from whose weights the layout was made."""
        return chunks_of(levels, self.table, kernel_view(self.words, np.int32))


def write_search(folder: Path, levels: Sequence[Level], nr_dense: int, threads: int = -1) -> None:
    """Write the search layout of the rankers in a folder. The file is filled in place."""
    here, nr_sparse = folder / SEARCH, levels[0].nr_features - nr_dense
    here.mkdir(parents=True)
    table, _ = build_chunks(levels, nr_sparse, nr_dense, threads, room=lambda count: _mapped(here / _WORDS, count))
    _write_header(folder, levels, nr_dense, table)


class SearchWriter:
    """Writes the search layout of rankers to their folder, chunk by chunk."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._parts = folder, list[ChunkTable]()
        (folder / SEARCH).mkdir(parents=True)
        self._words = GrowingNpy(folder / SEARCH / _WORDS, np.int32)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._words.__exit__(*error)

    def add(self, table: ChunkTable, words: np.ndarray) -> None:
        """Write the words of more chunks to the file, and keep their table, which ``finish`` writes."""
        self._parts.append(table)
        self._words.append(words)

    def chunks(self, levels: Sequence[Level]) -> Chunks:
        """Return the chunks written so far, which belong to ``levels``."""
        self._words.complete()
        words = read_npy(self.folder / SEARCH / _WORDS)
        return chunks_of(levels, self._table(), kernel_view(words, np.int32))

    def finish(self, levels: Sequence[Level], nr_dense: int) -> None:
        """Complete the layout. The folder must already contain the parameters and clusters of the levels."""
        self._words.complete()
        _write_header(self.folder, levels, nr_dense, self._table())

    def _table(self) -> ChunkTable:
        return ChunkTable(*map(np.concatenate, zip(*self._parts, strict=True)))


def link_search(stored: StoredSearch, folder: Path) -> None:
    """Link a layout into another folder of rankers, or copy it if the file system does not support hard links."""
    (folder / SEARCH).mkdir(parents=True)
    for name in (_WORDS, _TABLE, _HEADER):
        try:
            os.link(stored.folder / name, folder / SEARCH / name)
        except OSError:
            shutil.copyfile(stored.folder / name, folder / SEARCH / name)


def _write_header(folder: Path, levels: Sequence[Level], nr_dense: int, table: ChunkTable) -> None:
    """Write the chunk table and the header of a layout."""
    here = folder / SEARCH
    np.save(here / _TABLE, np.stack([table.rows, table.lengths]), allow_pickle=False)
    content = {
        "format": _FORMAT,
        "version": VERSION,
        "nr_weights": [level.nr_weights for level in levels],
        "nr_sparse": levels[0].nr_features - nr_dense,
        "nr_dense": nr_dense,
        "files": record_files(here),
    }
    (here / _HEADER).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def has_search(folder: Path, records: Records | None) -> bool:
    """Return whether rankers have the search layout. If an overwritten model left another, ``records`` tell which."""
    header = folder / SEARCH / _HEADER
    if not header.is_file():
        return False
    if records is not None:
        return os.path.relpath(header.resolve(), records.folder.resolve()) in records.files
    if any((folder / "ranker").glob("*.model/W.npz")):
        raise InputError(
            f"{folder} contains files of two models",
            expected=f"{SEARCH}/, or the W.npz of each level",
            received="both",
            fix="copy the model again into an empty folder; if PECOS has replaced the model, delete search/",
        )
    return True


def search_records(folder: Path) -> Records | None:
    """Return the records of the files of a layout."""
    return Records.read(folder / SEARCH, _HEADER)


def open_search(folder: Path) -> StoredSearch:
    """Map the search layout of rankers."""
    here = folder / SEARCH
    header = read_header(here / _HEADER, _FORMAT, VERSION, of="a search layout", fix=_FIX)
    try:
        rows, lengths = np.array(read_npy(here / _TABLE))
        words = read_npy(here / _WORDS)
        if words.dtype != np.int32 or words.shape != (lengths.sum(),):
            raise ValueError(f"{words.shape} words of {words.dtype}")
        sizes = header["nr_weights"], header["nr_sparse"], header["nr_dense"]
    except (KeyError, ValueError) as error:  # an InputError is a ValueError
        raise InputError(
            f"{here} is damaged", expected="the files as they were saved", received=str(error), fix=_FIX
        ) from None
    return StoredSearch(here, *sizes, ChunkTable(rows, lengths), words)


def _mapped(path: Path, count: int) -> np.ndarray:
    """Create a file with an int32 array of ``count`` zeros, and return the array, mapped for writing."""
    head = padded_head(np.dtype(np.int32), (count,), 0)
    with path.open("wb") as file:
        file.write(head)
        file.flush()
        # Reserve the space, because a full disk kills a process that writes to a map.
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, len(head) + 4 * count)
        else:  # macOS
            for low in range(0, 4 * count, _BLOCK):
                file.write(bytes(min(_BLOCK, 4 * count - low)))
    return np.asarray(np.memmap(path, np.int32, "r+", len(head), (count,)))


def stored_weights(stored: StoredSearch, levels: Sequence[Level], t: int) -> csc_matrix:
    """Return the weights of level ``t`` from the search layout."""
    chunks, level, clusters, threads = stored.chunks(levels), levels[t], levels[t].clusters, thread_count(-1)
    first, last = (int(chunks.level_start[t + i]) for i in range(2))
    # As the kernel numbers chunks: those before the level have no children here.
    indptr = np.concatenate([np.zeros(first, np.int64), clusters.indptr.astype(np.int64)])
    arguments: tuple[Any, ...] = (
        unpack, chunks.words, chunks.weights, chunks.bytes, chunks.start, chunks.rows, indptr,
        kernel_view(clusters.indices, np.int32), stored.nr_sparse, stored.nr_dense, level.bias,
    )  # fmt: skip

    def read(at: np.ndarray, indices: np.ndarray, data: np.ndarray) -> None:
        with ThreadPoolExecutor(threads) as pool:
            ranges = chunk_ranges(last - first, 4 * threads)
            _all_done(pool, [(*arguments, first + a, first + b, at, indices, data) for a, b in ranges])

    counts = np.zeros(clusters.shape[0], np.int64)
    read(counts, np.zeros(0, np.int32), np.zeros(0, np.float32))
    out_indptr = np.concatenate([[0], np.cumsum(counts)])
    indices, data = np.empty(out_indptr[-1], np.int32), np.empty(out_indptr[-1], np.float32)
    read(out_indptr[:-1].copy(), indices, data)
    if out_indptr[-1] <= np.iinfo(np.int32).max:
        out_indptr = out_indptr.astype(np.int32)
    nr_rows = stored.nr_sparse + stored.nr_dense + (level.bias > 0)
    matrix = csc_matrix((nr_rows, clusters.shape[0]), dtype=np.float32)
    matrix.indptr, matrix.indices, matrix.data = out_indptr, indices, data
    matrix.has_canonical_format = True
    assert matrix.nnz == stored.nr_weights[t]
    return matrix
