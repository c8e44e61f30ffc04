"""Files on a disk that all ranks share: written by all together, so that none waits for one that does it for all."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import numpy as np

from xmc_tf.data.npz.shared import Print, SharedNpy, SharedNpz
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks

PIECE_ENTRIES = 1 << 18  # 1 MB: a piece stays in the processor's own cache from its checksum until it is written

# Gives the numbers from one place of an array to another, piece by piece.
Range = Callable[[int, int], Iterator[np.ndarray]]


def write_together(
    communicator: Communicator, file: SharedNpz | SharedNpy, target: Path, ranges: Mapping[str, Range]
) -> None:
    """Writes a file, each rank an even range of every large array; it is there on return, whole, on all ranks.

    Args:
        communicator: the ranks.
        file: laid out the same on all ranks, under a name of its own.
        target: the name that it gets.
        ranges: by the arrays' names, what makes their numbers; any rank could make all.
    """
    _write(communicator, file, target, {name: (file.cuts(name, communicator.size), ranges[name]) for name in ranges})


class Own(NamedTuple):
    """A rank's own numbers of an array, which follow those of the ranks before it.

    Args:
        length: how many there are.
        numbers: makes them; counts from 0.
    """

    length: int
    numbers: Range


def write_own(communicator: Communicator, file: SharedNpz | SharedNpy, target: Path, own: Mapping[str, Own]) -> None:
    """The same for arrays of which each rank has a range of its own.

    No two ranks write to the same page of the file: the one that has a page's beginning is sent the rest of it.

    Args:
        communicator: the ranks.
        file: laid out the same on all ranks, under a name of its own.
        target: the name that it gets.
        own: by the arrays' names, what this rank has of them.
    """
    rank, size = communicator.rank, communicator.size
    everyones = communicator.allgather({name: one.length for name, one in own.items()})
    starts = {name: [0, *accumulate(lengths[name] for lengths in everyones)] for name in own}
    cuts = {name: file.cuts(name, starts[name][1:-1]) for name in own}

    def heads() -> list[dict[str, np.ndarray]]:
        """What lies in pages that other ranks begin, by these ranks."""
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

    _write(communicator, file, target, {name: (cuts[name], partial(numbers, name)) for name in own})


def _write(
    communicator: Communicator, file: SharedNpz | SharedNpy, target: Path, parts: Mapping[str, tuple[list[int], Range]]
) -> None:
    """Writes a file, each rank what lies between its bounds of every array."""
    first, rank = communicator.rank == 0, communicator.rank
    run_on_all_ranks(communicator, lambda: file.create() if first else None)

    def fill() -> dict[str, Print]:
        prints = {}
        for name, (cuts, numbers) in parts.items():
            begin, end = cuts[rank : rank + 2]
            prints[name] = file.fill(name, begin, numbers(begin, end))
        return prints

    everyones = communicator.allgather(run_on_all_ranks(communicator, fill))

    def finish() -> None:
        file.finish({name: [prints[name] for prints in everyones] for name in parts})
        file.path.replace(target)

    run_on_all_ranks(communicator, lambda: finish() if first else None)


def part_of(target: Path) -> Path:
    """What a file is called until it is whole; what a run that was killed has left there is written over."""
    return target.with_name(f".{target.name}.part")


def remove_together(communicator: Communicator, mine: Iterable[Path]) -> None:
    """Removes files, each rank some."""

    def remove() -> None:
        for path in mine:
            path.unlink(missing_ok=True)

    run_on_all_ranks(communicator, remove)
