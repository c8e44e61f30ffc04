"""The collectives that a training stands on, with answers that are known, timed on a short and on a long message."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from xmc_tf.ranks.communicator import Communicator

SHORT_BYTES = 4096
REPEATS = 5


@dataclass(frozen=True)
class Timing:
    """What one collective took: the middle of a few calls, on the slowest rank.

    Args:
        name: the collective's.
        right: whether every rank got the right answer every time.
        wrong_ranks: those that did not.
        short_ms: for a message of ``SHORT_BYTES``.
        long_ms: for a message of ``long_bytes``.
        long_bytes: what each rank has to send.
    """

    name: str
    right: bool
    wrong_ranks: list[int]
    short_ms: float
    long_ms: float
    long_bytes: int

    @property
    def megabytes_per_second(self) -> float:
        """What a rank gets rid of in a second."""
        return self.long_bytes / 1e3 / max(self.long_ms, 1e-6)


class Trial(NamedTuple):
    """A message that is ready to be sent, and what tells whether the right one has come."""

    call: Callable[[], Any]
    is_right: Callable[[Any], bool]


def broadcast(world: Communicator, count: int) -> Trial:
    """Return the last rank's numbers reach all."""
    root = world.size - 1
    expected = np.arange(count, dtype=np.float32) + root
    mine = expected if world.rank == root else None
    return Trial(lambda: world.broadcast_array(mine, root), lambda got: np.array_equal(got, expected))


def all_reduce(world: Communicator, count: int) -> Trial:
    """Return the sum over the ranks; small whole numbers, so that it is exact in any order."""
    numbers = np.arange(count, dtype=np.float32) % 1000
    mine, total = numbers * (world.rank + 1), numbers * (world.size * (world.size + 1) // 2)
    return Trial(lambda: world.allreduce_array(mine), lambda got: np.array_equal(got, total))


def all_to_all(world: Communicator, count: int) -> Trial:
    """Rows that say where they come from, more for one rank than for another."""
    rank, size = world.rank, world.size
    width = 16
    unit = max(1, 2 * count // (width * size * (size + 1)))

    def rows(source: int, target: int) -> np.ndarray:
        # Rank r gets r + 1 units from everybody.
        return np.full((unit * (target + 1), width), source * size + target, np.float32)

    sent = np.concatenate([rows(rank, target) for target in range(size)])
    counts = [unit * (target + 1) for target in range(size)]
    expected = np.concatenate([rows(source, rank) for source in range(size)])

    def is_right(got: tuple[np.ndarray, np.ndarray]) -> bool:
        return got[1].tolist() == [unit * (rank + 1)] * size and np.array_equal(got[0], expected)

    return Trial(lambda: world.alltoall_array(sent, counts), is_right)


COLLECTIVES: dict[str, Callable[[Communicator, int], Trial]] = {
    "broadcast": broadcast,
    "all-reduce": all_reduce,
    "all-to-all": all_to_all,
}


def measure(world: Communicator, name: str, long_bytes: int, announce: Callable[[str], None]) -> Timing:
    """Run one of ``COLLECTIVES`` a few times on all ranks.

    Args:
        world: the ranks.
        name: which.
        long_bytes: length of the long message.
        announce: called with what comes next.
    """
    right, milliseconds = True, []
    for size in (SHORT_BYTES, long_bytes):
        trial, taken = COLLECTIVES[name](world, max(1, size // 4)), []
        for repeat in range(REPEATS):
            announce(f"{name} of {size:,} bytes, {repeat + 1} of {REPEATS}")
            world.barrier()
            begun = time.perf_counter()
            answer = trial.call()
            taken.append(1000 * (time.perf_counter() - begun))
            right &= trial.is_right(answer)
        # The first call pays for memory and connections.
        milliseconds.append(float(np.median(taken[1:])))
    slowest = world.allreduce_array(np.array(milliseconds), "max")
    wrong = [rank for rank, fine in enumerate(world.allgather(right)) if not fine]
    return Timing(name, not wrong, wrong, float(slowest[0]), float(slowest[1]), long_bytes)


def as_table(timings: list[Timing]) -> str:
    """Return a line for each collective."""
    long_mb = timings[0].long_bytes / 1e6
    lines = [f"{'collective':<12} {'answer':<8} {'4 kB':>10} {f'{long_mb:g} MB':>12} {'a rank sends':>14}"]
    for timing in timings:
        answer = "right" if timing.right else "WRONG"
        lines.append(
            f"{timing.name:<12} {answer:<8} {timing.short_ms:>7.2f} ms {timing.long_ms:>9.1f} ms "
            f"{timing.megabytes_per_second:>9.0f} MB/s"
        )
    return "\n".join(lines)
