"""A team of threads on any ranks, for a task that is too wide for one of them; its states are saved on disk.

No member waits for a thread that is busy elsewhere: the plan (``distributed/plan.py``) determines the teams, and all
threads begin with the tasks of their teams, in the same order.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from xmc_tf.common.files.atomic import atomic_file
from xmc_tf.data.npz.reading import read_npz
from xmc_tf.linear.wide.sockets import Connections
from xmc_tf.linear.wide.solver import State
from xmc_tf.linear.wide.team import Team


class RankTeam(Team):
    """One member of a team.

    Args:
        parts: number of parts of the documents.
        threads: numbers of the members among the threads of all ranks.
        number: number of this member in the team.
        connections: connections of this member's thread; a team of one needs none.
        folder: folder of the team's states.
        begun: names of the states that an earlier run left; the result of :func:`states_left`.
    """

    def __init__(
        self, parts: int, threads: Sequence[int], number: int, connections: Connections | None, folder: Path,
        begun: Sequence[str],
    ) -> None:  # fmt: skip
        super().__init__(parts, len(threads), number)
        self._threads, self._connections, self._folder, self._begun = threads, connections, folder, begun

    def swap(self, other: int, outgoing: np.ndarray, incoming: np.ndarray) -> None:
        """Swap arrays over the connection of the two threads."""
        assert self._connections is not None
        self._connections.swap(self._threads[other], outgoing, incoming)

    def resume(self, name: str, state: State) -> None:
        """Load the last state that an earlier run left, if any."""
        steps = [int(file.rsplit(".", 2)[1]) for file in self._begun if file.startswith(f"{name}.")]
        if steps:
            arrays = read_npz(self._folder / f"{name}.{max(steps)}.npz", name="state of a wide task", mmap=False)
            state.w[:] = arrays["w"]
            state.step, state.every, done = (int(number) for number in arrays["where"])
            state.done = bool(done)

    def keep(self, name: str, state: State) -> None:
        """Save the state, on the first member; keep the previous one, which a slower member may still read."""
        if self.number == 0:
            self._folder.mkdir(parents=True, exist_ok=True)
            with atomic_file(self._folder / f"{name}.{state.step}.npz") as part, part.open("wb") as file:
                np.savez(file, w=state.w, where=np.array([state.step, state.every, state.done]))
            (self._folder / f"{name}.{state.step - 2}.npz").unlink(missing_ok=True)


def states_left(folder: Path) -> list[str]:
    """Return the names of the saved states of a wide task."""
    return [path.name for path in folder.glob("*.npz")]
