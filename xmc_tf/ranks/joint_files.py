"""Files on a shared disk that all ranks write in parallel."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import numpy as np

from xmc_tf.data.npz.writing import RangeChecksum, SharedNpy, SharedNpz
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks

PIECE_ENTRIES = 1 << 18  # 1 MB: a piece stays in the processor's cache between its checksum and its write

# Yields the entries [begin, end) of an array, piece by piece.
Range = Callable[[int, int], Iterator[np.ndarray]]


def write_from_all_ranks(
    communicator: Communicator,
    file: SharedNpz | SharedNpy,  # unfinished, with the same layout on all ranks
    target: Path,
    ranges: Mapping[str, Range],  # by array name; each rank must be able to make any range
) -> None:
    """Write a file; each rank writes an equal range of every large array.

    All ranks must call this. The file is complete on return.
    """
    own = {}
    for name, numbers in ranges.items():
        begin, end = file.cuts(name, communicator.size)[communicator.rank : communicator.rank + 2]
        own[name] = OwnRange(end - begin, partial(_shifted, numbers, begin))
    write_own_ranges(communicator, file, target, own)


def _shifted(numbers: Range, by: int, begin: int, end: int) -> Iterator[np.ndarray]:
    return numbers(begin + by, end + by)


class OwnRange(NamedTuple):
    """The entries of an array that only this rank has. They follow the entries of the lower ranks."""

    length: int
    numbers: Range  # counted from 0


def write_own_ranges(
    communicator: Communicator, file: SharedNpz | SharedNpy, target: Path, own: Mapping[str, OwnRange]
) -> None:
    """Write a file from each rank's own ranges of the arrays. No two ranks write to the same page of the file.

    All ranks must call this.
    """
    rank, size, first = communicator.rank, communicator.size, communicator.rank == 0
    gathered = communicator.allgather({name: one.length for name, one in own.items()})
    starts = {name: [0, *accumulate(lengths[name] for lengths in gathered)] for name in own}
    cuts = {name: file.cuts(name, starts[name][1:-1]) for name in own}

    def heads() -> list[dict[str, np.ndarray]]:
        """Return, for each rank, this rank's entries in pages that begin in that rank's range."""
        for_others: list[dict[str, np.ndarray]] = [{} for _ in range(size)]
        for name, one in own.items():
            count = min(cuts[name][rank] - starts[name][rank], one.length)
            if count > 0:
                owner = bisect_right(cuts[name], starts[name][rank]) - 1
                for_others[owner][name] = np.concatenate([piece.copy() for piece in one.numbers(0, count)])
        return for_others

    received = communicator.alltoall(run_on_all_ranks(communicator, heads))

    def numbers(name: str, begin: int, end: int) -> Iterator[np.ndarray]:
        first, last = starts[name][rank : rank + 2]
        if begin < min(end, last):
            yield from own[name].numbers(begin - first, min(end, last) - first)
        yield from (head[name] for head in received if name in head)

    run_on_all_ranks(communicator, lambda: file.create() if first else None)

    def fill() -> dict[str, RangeChecksum]:
        return {name: file.fill(name, cuts[name][rank], numbers(name, *cuts[name][rank : rank + 2])) for name in own}

    checksums = communicator.allgather(run_on_all_ranks(communicator, fill))

    def finish() -> None:
        file.finish({name: [one[name] for one in checksums] for name in own})
        file.path.replace(target)

    run_on_all_ranks(communicator, lambda: finish() if first else None)


def unfinished_path(target: Path) -> Path:
    """Return the path at which ``target`` is written until it is complete. Leftovers of older runs are overwritten."""
    return target.with_name(f".{target.name}.part")


def remove_from_all_ranks(communicator: Communicator, mine: Iterable[Path]) -> None:
    """Remove the files that each rank lists. All ranks must call this."""

    def remove() -> None:
        for path in mine:
            path.unlink(missing_ok=True)

    run_on_all_ranks(communicator, remove)
