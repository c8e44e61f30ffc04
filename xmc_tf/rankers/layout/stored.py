"""The layout for search on disk, beside the weights: mapped, so that a model answers at once and processes share it.

search/search.json   the weights from which it was made, by the checksums in their archives
search/chunks.npy    rows, words and checksum of each chunk
search/words.npy     the words of all chunks

The weights in PECOS's format stay what counts. The layout can be deleted; if it is missing, damaged, or made from other
weights, the weights are arranged in memory instead. A chunk is compared with its checksum when it is first used, so no
start has to read the whole file.
"""

import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.archives import member_checksums
from xmc_tf.common.files.json_files import read_json
from xmc_tf.common.folders.checksums import crc_of_file
from xmc_tf.common.kernels import kernel_view
from xmc_tf.data.npz.reading import read_npy
from xmc_tf.data.npz.writing import padded_head
from xmc_tf.rankers.kernels.layout import VERSION, Chunks
from xmc_tf.rankers.layout.chunks import ChunkTable, build_chunks, chunks_of
from xmc_tf.rankers.level import Level

_LOG = logging.getLogger(__name__)
_FORMAT = "xmc_tf.search"
_HEADER, _TABLE, _WORDS = "search.json", "chunks.npy", "words.npy"
SEARCH = "search"
SEARCH_ENDINGS = tuple(f"{SEARCH}/{name}" for name in (_HEADER, _TABLE, _WORDS))
FEWEST_WEIGHTS = 1 << 20
"""Smaller models are arranged in a fraction of a second, and their folders stay small."""


class StoredSearch(NamedTuple):
    """An open layout.

    Attributes:
        folder: where it is.
        nr_weights: number of weights of each level.
        nr_sparse, nr_dense: numbers of features for which it was made.
        table: rows, length and checksum of each chunk.
        words: the words of all chunks, mapped.
    """

    folder: Path
    nr_weights: list[int]
    nr_sparse: int
    nr_dense: int
    table: ChunkTable
    words: np.ndarray

    def chunks(self, levels: Sequence[Level]) -> Chunks:
        """Return the chunks of the levels from whose weights the layout was made."""
        return chunks_of(levels, self.table, kernel_view(self.words, np.int32))


def write_search(folder: Path, levels: Sequence[Level], nr_dense: int, threads: int = -1) -> None:
    """Write the layout of the rankers in a folder, if they are large enough; the file is filled in place.

    Args:
        folder: the folder of the rankers, with their weights.
        levels: the rankers.
        nr_dense: number of dense features.
        threads: number of threads; the files do not depend on it.
    """
    nr_weights = [level.nr_weights for level in levels]
    if sum(nr_weights) < FEWEST_WEIGHTS:
        return
    here = folder / SEARCH
    here.mkdir(parents=True)
    nr_sparse = levels[0].nr_features - nr_dense
    table, _ = build_chunks(levels, nr_sparse, nr_dense, threads, room=lambda count: _mapped(here / _WORDS, count))
    np.save(here / _TABLE, np.stack([table.rows, table.lengths, table.checksums.view(np.int64)]), allow_pickle=False)
    content = {
        "format": _FORMAT,
        "version": VERSION,
        "nr_weights": nr_weights,
        "nr_sparse": nr_sparse,
        "nr_dense": nr_dense,
        "made_from": _sources(folder, [level.bias for level in levels]),
        _TABLE: crc_of_file(here / _TABLE),
    }
    (here / _HEADER).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def has_search(folder: Path) -> bool:
    """Return whether a folder of rankers has a layout."""
    return (folder / SEARCH / _HEADER).is_file()


def open_search(folder: Path, biases: Sequence[float]) -> StoredSearch | None:
    """Map the layout of the rankers in a folder; return None, with a warning, if it cannot be used.

    Args:
        folder: the folder of the rankers.
        biases: the value of the constant feature of each level.
    """
    here = folder / SEARCH
    try:
        header: dict[str, Any] = read_json(here / _HEADER)
        if (header.get("format"), header.get("version")) != (_FORMAT, VERSION):
            raise InputError(f"{here / _HEADER} is of another version", expected=str(VERSION))
        if header["made_from"] != _sources(folder, biases):
            raise InputError(f"{here} was made from other weights than those beside it")
        if header[_TABLE] != crc_of_file(here / _TABLE):
            raise InputError(f"{here / _TABLE} is damaged")
        rows, lengths, checksums = np.array(read_npy(here / _TABLE))
        words = read_npy(here / _WORDS)
        if words.dtype != np.int32 or words.shape != (lengths.sum(),):
            raise InputError(f"{here / _WORDS} is damaged")
        table = ChunkTable(rows, lengths, checksums.view(np.uint64))
        return StoredSearch(here, header["nr_weights"], header["nr_sparse"], header["nr_dense"], table, words)
    except (InputError, OSError, KeyError, ValueError) as error:
        warn_of_damage(here, error.problem if isinstance(error, InputError) else str(error))
        return None


def warn_of_damage(folder: Path, problem: str) -> None:
    """Log that a layout is not used.

    Args:
        folder: the folder of the layout.
        problem: what is wrong with it.
    """
    _LOG.warning(
        "%s; the weights are arranged in memory instead, which takes longer; fix: copy the model again, or delete %s",
        problem, folder,
    )  # fmt: skip


def _mapped(path: Path, count: int) -> np.ndarray:
    """Return a new file's array of zeros, mapped for writing."""
    head = padded_head(np.dtype(np.int32), (count,), 0)
    with path.open("wb") as file:
        file.write(head)
        file.flush()
        # Reserve the room, because a full disk ends a process that writes to a map.
        os.posix_fallocate(file.fileno(), 0, len(head) + 4 * count)
    return np.asarray(np.memmap(path, np.int32, "r+", len(head), (count,)))


def _sources(folder: Path, biases: Sequence[float]) -> list[dict[str, Any]]:
    """Return what the layout depends on: of each level, the bias, and the checksums of its weights and clusters."""
    places = [folder / "ranker" / f"{t}.model" for t in range(len(biases))]
    return [
        {"bias": bias, **{name: member_checksums(place / name) for name in ("W.npz", "C.npz")}}
        for place, bias in zip(places, biases, strict=True)
    ]
