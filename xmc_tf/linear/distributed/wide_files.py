"""A team of threads on any ranks, for a task that is too wide for one of them; it sums by files in the work folder.

Each member writes its parts; each adds its slice of all parts and writes that; each reads all slices. Nobody waits for
a thread that is busy elsewhere: who belongs to which team follows from the plan, and all begin with the wide tasks, in
the same order.
"""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from xmc_tf.common.atomic import atomic_file
from xmc_tf.linear.wide import State
from xmc_tf.linear.wide_threads import add_in_order

_SMALL = 1 << 20  # bytes; smaller files are read at once
_LOOK_S = (0.0005, 0.02)  # how long a member sleeps between looks: at first, and at most


class StoppedError(Exception):
    """Another thread of this rank has failed."""


class FileTeam:
    """One member; see :class:`~xmc_tf.linear.wide_parts.Team`.

    Args:
        folder: the task's, for all runs.
        run: a name that is new for every run.
        parts: of how many the task consists.
        members: how many share it.
        number: of this one.
        begun: the states that an earlier run has left, as :func:`states_left` found them.
        stopped: asked while waiting.
    """

    def __init__(
        self, folder: Path, run: str, parts: int, members: int, number: int, begun: list[str], stopped: Callable
    ) -> None:
        self.parts, self.mine, self.first = parts, range(number, parts, members), number == 0
        self._folder, self._sums, self._members, self._number = folder, folder / run, members, number
        self._begun, self._stopped = begun, stopped
        self._count = 0
        self._old: list[Path] = []
        self._written: list[Path] = []
        self._sums.mkdir(parents=True, exist_ok=True)

    def total(self, of_parts: list[np.ndarray]) -> np.ndarray:
        """Each adds a slice of all parts, in their order."""
        self._count += 1
        self._write(f"{self._count}.parts{self._number}.npy", np.stack(of_parts))
        parts = [self._read(f"{self._count}.parts{member}.npy") for member in range(self._members)]
        mine = [
            np.array_split(parts[part % self._members][part // self._members], self._members)[self._number]
            for part in range(self.parts)
        ]
        self._write(f"{self._count}.sum{self._number}.npy", add_in_order(mine))
        total = np.concatenate([self._read(f"{self._count}.sum{member}.npy") for member in range(self._members)])
        # All slices of this sum are there, so everybody has read all of the sum before.
        for path in self._old:
            path.unlink()
        self._old, self._written = self._written, []
        return total

    def resume(self, name: str, state: State) -> None:
        """Takes the last state that an earlier run has left."""
        steps = [int(file.rsplit(".", 2)[1]) for file in self._begun if file.startswith(f"{name}.")]
        if steps:
            with np.load(self._folder / f"{name}.{max(steps)}.npz") as arrays:
                state.w[:] = arrays["w"]
                state.step, state.every, done = (int(number) for number in arrays["where"])
                state.done = bool(done)

    def keep(self, name: str, state: State) -> None:
        """The first writes the state for all; the one before it stays, which a later member may be reading."""
        if self.first:
            with atomic_file(self._folder / f"{name}.{state.step}.npz") as part, part.open("wb") as file:
                np.savez(file, w=state.w, where=np.array([state.step, state.every, state.done]))
            (self._folder / f"{name}.{state.step - 2}.npz").unlink(missing_ok=True)

    def _write(self, name: str, array: np.ndarray) -> None:
        path = self._sums / name
        with atomic_file(path) as part, part.open("wb") as file:
            np.save(file, array)
        self._written.append(path)

    def _read(self, name: str) -> np.ndarray:
        """An array, mapped, when it is there; it appears whole."""
        path, wait = self._sums / name, _LOOK_S[0]
        while not path.exists():
            if self._stopped():
                raise StoppedError
            time.sleep(wait)
            wait = min(2 * wait, _LOOK_S[1])
        return np.load(path, mmap_mode="r" if path.stat().st_size > _SMALL else None)


def states_left(folder: Path) -> list[str]:
    """The names of the states of a wide task; what a run before has left of its sums is removed."""
    if not folder.is_dir():
        return []
    for old in folder.iterdir():
        if old.is_dir():
            shutil.rmtree(old)
    return [path.name for path in folder.glob("*.npz")]


def teams(parts: list[int], threads: int) -> list[range]:
    """Which threads of all ranks solve each wide task: as many as divide its parts evenly, in turn.

    Example:
        >>> teams([8, 2, 2], 6)
        [range(0, 4), range(4, 6), range(6, 8)]

    Args:
        parts: of each task, in the order of the plan.
        threads: of all ranks.

    Returns:
        Threads, to be taken modulo their number.
    """
    found, start = [], 0
    for number in parts:
        members = 1
        while members * 2 <= min(number, threads):
            members *= 2
        found.append(range(start, start + members))
        start = (start + members) % threads
    return found
