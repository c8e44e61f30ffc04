"""TensorBoard curves of the ranks' work: a run per rank, over the seconds since the start."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from xmc_tf.common.files.event_file import EventFile
from xmc_tf.common.progress import WATCHERS, Progress
from xmc_tf.rankers.distributed.account import RankWork, own_memory
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.on_all_ranks import run_on_all_ranks

EVERY_S = 5.0


@contextmanager
def reported(
    logdir: str | Path | None, communicator: Communicator, account: RankWork | None = None, every_s: float | None = None
) -> Iterator[None]:
    """Write curves while the ``with`` block runs, every few seconds and at its end. Enter it on all ranks.

    ==========================  ==================================================================================
    ``ranks/…``                 of each rank: sub-problems and work done, busy and waiting seconds, peak memory
    ``done/<what>``             rank 0: percentage done of each piece of work, such as the tree or a level
    ``seconds left/<what>``     rank 0: estimate of the remaining seconds
    ==========================  ==================================================================================

    Args:
        logdir: each rank writes to ``<logdir>/rank-<number>``; None: write nothing.
        communicator: the ranks.
        account: this rank's work. Default: only its memory is written.
        every_s: seconds between two points. Default: 5.
    """
    if logdir is None:
        yield
        return
    folder = Path(logdir) / f"rank-{communicator.rank}"
    file = run_on_all_ranks(communicator, lambda: EventFile(folder))
    begun: dict[str, Progress] = {}
    start, stop = time.monotonic(), Event()

    def note(progress: Progress) -> None:
        begun[progress.title] = progress

    def write() -> None:
        scalars = _of_account(account)
        for title, progress in list(begun.items()):
            scalars[f"done/{title}"] = 100 * min(progress.done / max(progress.total, 1), 1.0)
            if progress.left_s is not None:
                scalars[f"seconds left/{title}"] = progress.left_s
            if progress.done >= progress.total:
                begun.pop(title)
        file.write(scalars, step=round(time.monotonic() - start))

    def keep_writing() -> None:
        while not stop.wait(EVERY_S if every_s is None else every_s):
            write()

    thread = Thread(target=keep_writing, name="tensorboard", daemon=True)
    if communicator.rank == 0:
        WATCHERS.append(note)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        if communicator.rank == 0:
            WATCHERS.remove(note)
        write()
        file.close()


def _of_account(account: RankWork | None) -> dict[str, float]:
    if account is None:
        return {"ranks/memory, MiB": own_memory() / 2**20}
    figures = account.summary("")
    named = {
        "ranks/sub-problems done": figures["problems"],
        "ranks/work done": figures["work"],
        "ranks/busy seconds": figures["busy_s"],
        "ranks/waiting seconds": figures["waiting_s"],
        "ranks/peak memory, MiB": float(figures["peak_bytes"]) / 2**20,
    }
    return {tag: float(value) for tag, value in named.items()}
