"""Checks of the collectives that training uses: results are compared with known ones, for short and long messages."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from xmc_tf.ranks.communicator import Communicator

SHORT_BYTES = 4096
REPEATS = 5
_LARGE_BYTES = 1 << 28  # longer messages are sent twice only
_NUMBERS = np.arange(1000, dtype=np.float32)


@dataclass(frozen=True)
class Timing:
    """The time of a collective on the slowest rank: the median of a few calls."""

    name: str
    right: bool
    wrong_ranks: list[int]
    short_ms: float  # for a message of SHORT_BYTES
    long_ms: float
    long_bytes: int  # that each rank sends

    @property
    def megabytes_per_second(self) -> float:
        return self.long_bytes / 1e3 / max(self.long_ms, 1e-6)


class CollectiveTrial(NamedTuple):
    """A collective call with a message, and a function that checks the result."""

    call: Callable[[], Any]
    is_right: Callable[[Any], bool]


def broadcast(world: Communicator, count: int) -> CollectiveTrial:
    """Return a trial in which the last rank broadcasts numbers."""
    root = world.size - 1
    right = np.resize(_NUMBERS + root, count)
    mine = right if world.rank == root else None
    return CollectiveTrial(lambda: world.broadcast_array(mine, root), lambda got: np.array_equal(got, right))


def all_reduce(world: Communicator, count: int) -> CollectiveTrial:
    """Return a trial that sums small integers over the ranks. The sum is exact in any order."""
    mine, total = np.resize(_NUMBERS * (world.rank + 1), count), world.size * (world.size + 1) // 2
    return CollectiveTrial(
        lambda: world.allreduce_array(mine), lambda got: np.array_equal(got, np.resize(_NUMBERS * total, count))
    )


def all_to_all(world: Communicator, count: int) -> CollectiveTrial:
    """Return a trial that exchanges rows, each marked with its source. Ranks receive different numbers of rows."""
    rank, size = world.rank, world.size
    width = 16
    unit = max(1, 2 * count // (width * size * (size + 1)))
    # Rank r receives r + 1 units from each rank.
    counts = [unit * (target + 1) for target in range(size)]
    sent = np.empty((sum(counts), width), np.float32)
    for target, part in enumerate(np.split(sent, np.cumsum(counts)[:-1])):
        part[:] = rank * size + target

    def is_right(got: tuple[np.ndarray, np.ndarray]) -> bool:
        rows, received = got
        each = unit * (rank + 1)
        if received.tolist() != [each] * size or rows.shape != (each * size, width):
            return False
        return all(
            bool((rows[each * source : each * (source + 1)] == source * size + rank).all()) for source in range(size)
        )

    return CollectiveTrial(lambda: world.alltoall_array(sent, counts), is_right)


COLLECTIVES: dict[str, Callable[[Communicator, int], CollectiveTrial]] = {
    "broadcast": broadcast,
    "all-reduce": all_reduce,
    "all-to-all": all_to_all,
}


def measure(world: Communicator, name: str, long_bytes: int) -> Timing:
    """Run one of ``COLLECTIVES`` a few times, check its results, and time it. All ranks must call this."""
    right, milliseconds = True, []
    for size in (SHORT_BYTES, long_bytes):
        trial, taken = COLLECTIVES[name](world, max(1, size // 4)), []
        for _ in range(REPEATS if size <= _LARGE_BYTES else 2):
            world.barrier()
            begun = time.perf_counter()
            result = trial.call()
            taken.append(1000 * (time.perf_counter() - begun))
            right &= trial.is_right(result)
        # The first call also allocates memory and connects.
        milliseconds.append(float(np.median(taken[1:])))
    slowest = world.allreduce_array(np.array(milliseconds), "max")
    wrong = [rank for rank, fine in enumerate(world.allgather(right)) if not fine]
    return Timing(name, not wrong, wrong, float(slowest[0]), float(slowest[1]), long_bytes)


def as_table(timings: list[Timing]) -> str:
    long_mb = timings[0].long_bytes / 1e6
    head = f"{'collective':<12} {'result':<8} {'4 kB':>10} {f'{long_mb:g} MB':>12} {'per rank':>14}"
    lines = [
        f"{one.name:<12} {'right' if one.right else 'WRONG':<8} {one.short_ms:>7.2f} ms {one.long_ms:>9.1f} ms "
        f"{one.megabytes_per_second:>9.0f} MB/s"
        for one in timings
    ]
    return "\n".join([head, *lines])
