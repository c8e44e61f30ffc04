"""The search layout of weights, in memory or memory-mapped from disk: models load at once, and processes share them.

search/search.json   numbers of weights and features, and checksums of the matrices that the layout was made from
search/chunks.npy    number of rows, number of words and checksum of each chunk
search/words.npy     the words of all chunks

If the folder also contains weights in PECOS's format, the layout can be deleted. If it is missing, damaged, or made
from other weights, the weights are arranged in memory instead. Models trained on large data have only the layout, which
takes less than half the space of both and can be written during training. The checksum of a chunk is verified on first
use, so loading a model need not read the whole file.
"""

import json
import logging
import os
import shutil
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.sparse import csc_matrix

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.archives import member_checksums
from xmc_tf.common.files.crc import crc_of_all
from xmc_tf.common.files.json_files import read_json
from xmc_tf.common.files.writing import write_in_steps
from xmc_tf.common.folders.checksums import crc_of_file
from xmc_tf.common.kernels import kernel_view
from xmc_tf.common.threads import thread_count
from xmc_tf.data.npz.reading import read_npy
from xmc_tf.data.npz.writing import padded_head
from xmc_tf.rankers.kernels.layout import SHARE, VERSION, Chunks, fill, measure, padded, unpack
from xmc_tf.rankers.level import Level
from xmc_tf.rankers.query_arrays import sparse_arrays

_FIX = "copy the model again from where it is intact, or train it again"


class ChunkTable(NamedTuple):
    """Number of rows, number of words and checksum of each chunk."""

    rows: np.ndarray  # number of rows
    lengths: np.ndarray  # number of words
    checksums: np.ndarray  # of the words


def build_chunks(
    levels: Sequence[Level], nr_sparse: int, nr_dense: int, threads: int = 1,
    room: Callable[[int], np.ndarray] = lambda count: np.zeros(count, np.int32),
) -> tuple[ChunkTable, Chunks]:  # fmt: skip
    """Arrange the weights of all levels for search; ``room(count)`` returns an int32 array of ``count`` zeros."""
    threads = thread_count(threads)
    starts = np.cumsum([0, *(level.clusters.shape[1] for level in levels)])
    rows, lengths = (np.zeros(int(starts[-1]), np.int64) for _ in range(2))
    table = ChunkTable(rows, lengths, np.zeros(len(rows), np.uint64))
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
        chunks.verified[:] = 1
        jobs = [
            (
                fill, *arrays, *sizes, bias, chunks.start[own.start : own.stop + 1], words, chunks.weights,
                chunks.bytes, chunks.lines, table.checksums[own],
            )
            for bias, own, arrays, sizes in works
        ]  # fmt: skip
        _all_done(pool, jobs)
    return table, chunks


def chunks_of(levels: Sequence[Level], table: ChunkTable, words: np.ndarray) -> Chunks:
    """Return the chunks of levels without reading their weights. Checksums are verified on first use."""
    child_counts = np.concatenate([np.diff(level.clusters.indptr) for level in levels])
    return Chunks(
        level_start=np.cumsum([0, *(level.clusters.shape[1] for level in levels)]),
        child_start=np.concatenate([[0], np.cumsum(child_counts, dtype=np.int64)]),
        children=np.concatenate([level.clusters.indices for level in levels]).astype(np.int32, copy=False),
        start=np.concatenate([[0], np.cumsum(table.lengths)]), rows=table.rows, words=words,
        weights=words.view(np.float32), bytes=words.view(np.uint8), lines=words.view(np.uint64),
        checksums=table.checksums, verified=np.zeros(len(table.rows), np.uint8), damaged=np.zeros(1, np.uint8),
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


_LOG = logging.getLogger(__name__)
_FORMAT = "xmc_tf.search"
_HEADER, _TABLE, _WORDS = "search.json", "chunks.npy", "words.npy"
SEARCH = "search"
SEARCH_ENDINGS = tuple(f"{SEARCH}/{name}" for name in (_HEADER, _TABLE, _WORDS))
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
    alone: bool  # whether the model has no other weights

    def chunks(self, levels: Sequence[Level]) -> Chunks:
        """Return the chunks; ``levels`` are the levels from whose weights the layout was made."""
        return chunks_of(levels, self.table, kernel_view(self.words, np.int32))


def write_search(folder: Path, levels: Sequence[Level], nr_dense: int, threads: int = -1) -> None:
    """Write the search layout of the rankers in a folder, unless they are small. The file is filled in place."""
    if sum(level.nr_weights for level in levels) < FEWEST_WEIGHTS:
        return
    here, nr_sparse = folder / SEARCH, levels[0].nr_features - nr_dense
    here.mkdir(parents=True)
    table, _ = build_chunks(levels, nr_sparse, nr_dense, threads, room=lambda count: _mapped(here / _WORDS, count))
    _write_header(folder, levels, nr_dense, table)


class SearchWriter:
    """Writes the search layout of rankers to their folder, chunk by chunk, for a model without other weight files."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._parts, self._crc = folder, list[ChunkTable](), 0
        (folder / SEARCH).mkdir(parents=True)
        self._file = (folder / SEARCH / _WORDS).open("wb")
        self._file.write(padded_head(np.dtype(np.int32), (0,), 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, table: ChunkTable, words: np.ndarray) -> None:
        """Write the words of more chunks to the file, and keep their table, which ``finish`` writes."""
        self._parts.append(table)
        content = np.ascontiguousarray(words).view(np.uint8).data
        self._crc = zlib.crc32(content, self._crc)
        write_in_steps(self._file, content)

    def chunks(self, levels: Sequence[Level]) -> Chunks:
        """Return the chunks written so far, which belong to ``levels``."""
        self._write_head()
        words = read_npy(self.folder / SEARCH / _WORDS)
        return chunks_of(levels, self._table(), kernel_view(words, np.int32))

    def finish(self, levels: Sequence[Level], nr_dense: int) -> None:
        """Complete the layout. The folder must already contain the parameters and clusters of the levels."""
        head, size = self._write_head(), self._file.tell()
        crc = crc_of_all([(zlib.crc32(head), len(head)), (self._crc, size - len(head))])
        _write_header(self.folder, levels, nr_dense, self._table(), {"bytes": size, "crc32": f"{crc:08x}"})

    def _table(self) -> ChunkTable:
        return ChunkTable(*map(np.concatenate, zip(*self._parts, strict=True)))

    def _write_head(self) -> bytes:
        """Write the header of the words file, which contains the number of words, and return it."""
        length = sum(int(part.lengths.sum()) for part in self._parts)
        head, end = padded_head(np.dtype(np.int32), (length,), 0), self._file.tell()
        assert end == len(head) + 4 * length  # heads of all lengths are padded to the same size
        self._file.seek(0)
        self._file.write(head)
        self._file.seek(end)
        self._file.flush()
        return head


def link_search(stored: StoredSearch, folder: Path) -> None:
    """Link a layout into another folder of rankers, or copy it if the file system does not support hard links."""
    (folder / SEARCH).mkdir(parents=True)
    for name in (_WORDS, _TABLE, _HEADER):
        try:
            os.link(stored.folder / name, folder / SEARCH / name)
        except OSError:
            shutil.copyfile(stored.folder / name, folder / SEARCH / name)


def known_records(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the recorded sizes and checksums of the words files below a model folder, without reading these files."""
    found = {}
    for header in folder.rglob(f"{SEARCH}/{_HEADER}"):
        record = read_json(header).get(_WORDS)
        if record is not None and header.with_name(_WORDS).stat().st_size == record["bytes"]:
            found[header.with_name(_WORDS).relative_to(folder).as_posix()] = record
    return found


def _write_header(
    folder: Path, levels: Sequence[Level], nr_dense: int, table: ChunkTable, words: dict[str, Any] | None = None
) -> None:
    """Write the chunk table and the header of a layout. ``words`` is the record of the words file, if it is known."""
    here = folder / SEARCH
    np.save(here / _TABLE, np.stack([table.rows, table.lengths, table.checksums.view(np.int64)]), allow_pickle=False)
    content = {
        "format": _FORMAT,
        "version": VERSION,
        "nr_weights": [level.nr_weights for level in levels],
        "nr_sparse": levels[0].nr_features - nr_dense,
        "nr_dense": nr_dense,
        "made_from": _sources(folder, [level.bias for level in levels]),
        _TABLE: crc_of_file(here / _TABLE),
        **({} if words is None else {_WORDS: words}),
    }
    (here / _HEADER).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def has_search(folder: Path) -> bool:
    return (folder / SEARCH / _HEADER).is_file()


def open_search(folder: Path, biases: Sequence[float]) -> StoredSearch | None:
    """Map the search layout of rankers. If it is unusable, warn and return None, or raise if no other weights exist."""
    here = folder / SEARCH
    try:
        header: dict[str, Any] = read_json(here / _HEADER)
        if (header.get("format"), header.get("version")) != (_FORMAT, VERSION):
            raise InputError(
                f"{here / _HEADER} has version {header.get('version')!r}, not {VERSION}",
                fix="use the version of xmc_tf that wrote the model, or train it again",
            )
        if header["made_from"] != _sources(folder, biases):
            raise InputError(f"{here} does not match the weights beside it")
        if header[_TABLE] != crc_of_file(here / _TABLE):
            raise InputError(f"{here / _TABLE} is damaged")
        rows, lengths, checksums = np.array(read_npy(here / _TABLE))
        words = read_npy(here / _WORDS)
        if words.dtype != np.int32 or words.shape != (lengths.sum(),):
            raise InputError(f"{here / _WORDS} is damaged")
        table = ChunkTable(rows, lengths, checksums.view(np.uint64))
        alone = not any("W.npz" in one for one in header["made_from"])
        return StoredSearch(here, header["nr_weights"], header["nr_sparse"], header["nr_dense"], table, words, alone)
    except (InputError, OSError, KeyError, ValueError) as error:
        problem = error.problem if isinstance(error, InputError) else str(error)
        if not any((folder / "ranker").glob("*.model/W.npz")):
            fix = (error.fix if isinstance(error, InputError) else "") or _FIX
            raise InputError(f"{problem}; the model has no other copy of its weights", fix=fix) from None
        warn_of_damage(here, problem)
        return None


def damaged(folder: Path) -> InputError:
    """Return the error for a damaged layout that is the model's only copy of the weights."""
    return InputError(
        f"{folder} is damaged: its content has changed since it was saved", expected="the checksums in it",
        received="other checksums", fix=_FIX,
    )  # fmt: skip


def warn_of_damage(folder: Path, problem: str) -> None:
    _LOG.warning(
        "%s; the weights are arranged in memory instead, which takes longer; fix: copy the model again, or delete %s",
        problem, folder,
    )  # fmt: skip


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


def _sources(folder: Path, biases: Sequence[float]) -> list[dict[str, Any]]:
    """Return the source of a layout: each level's bias, and the checksums of its weights and clusters."""
    places = [folder / "ranker" / f"{t}.model" for t in range(len(biases))]
    return [
        {
            "bias": bias,
            **({"W.npz": member_checksums(place / "W.npz")} if (place / "W.npz").exists() else {}),
            "C.npz": member_checksums(place / "C.npz"),
        }
        for place, bias in zip(places, biases, strict=True)
    ]


def stored_weights(stored: StoredSearch, levels: Sequence[Level], t: int) -> csc_matrix:
    """Return the weights of level ``t`` of a model that stores them only in the search layout."""
    chunks, level, clusters, threads = stored.chunks(levels), levels[t], levels[t].clusters, thread_count(-1)
    first, last = (int(chunks.level_start[t + i]) for i in range(2))
    # As the kernel numbers chunks: those before the level have no children here.
    indptr = np.concatenate([np.zeros(first, np.int64), clusters.indptr.astype(np.int64)])
    arguments: tuple[Any, ...] = (
        unpack, chunks.words, chunks.weights, chunks.bytes, chunks.lines, chunks.start, chunks.rows, chunks.checksums,
        indptr, kernel_view(clusters.indices, np.int32), stored.nr_sparse, stored.nr_dense, level.bias,
    )  # fmt: skip

    def read(at: np.ndarray, indices: np.ndarray, data: np.ndarray) -> None:
        with ThreadPoolExecutor(threads) as pool:
            ranges = chunk_ranges(last - first, 4 * threads)
            jobs = [(*arguments, first + a, first + b, at, indices, data) for a, b in ranges]
            for future in [pool.submit(*job) for job in jobs]:
                if future.result() >= 0:
                    raise damaged(stored.folder)

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
