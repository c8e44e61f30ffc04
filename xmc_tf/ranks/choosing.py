"""Choose this process's communicator: a single process, Horovod or MPI, by how it was started."""

import logging
import os
import sys
from collections.abc import Callable, Mapping
from functools import cache
from types import TracebackType
from typing import Any, Literal

from xmc_tf.common.errors import InputError
from xmc_tf.common.process import cli, launcher, run_records
from xmc_tf.ranks.communicator import Communicator

log = logging.getLogger(__name__)

Kind = Literal["solo", "horovod", "mpi"]

# What launchers tell the processes that they start: rank and size.
_LAUNCHERS: tuple[tuple[Kind, str, str], ...] = (
    ("horovod", "HOROVOD_RANK", "HOROVOD_SIZE"),
    ("mpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("mpi", "PMI_RANK", "PMI_SIZE"),
    ("mpi", "PMIX_RANK", "PMIX_SIZE"),
)


def how_started(environment: Mapping[str, str]) -> tuple[Kind, str]:
    """What kind of world these variables speak of, and which of them says so."""
    forced = environment.get("XMC_TF_COMMUNICATOR")
    if forced:
        if forced not in ("solo", "horovod", "mpi"):
            raise InputError("XMC_TF_COMMUNICATOR", expected="solo, horovod or mpi", received=repr(forced))
        return forced, f"XMC_TF_COMMUNICATOR={forced}"  # type: ignore[return-value]
    for kind, rank_name, size_name in _LAUNCHERS:
        if rank_name in environment:
            size = environment.get(size_name, "?")
            return ("solo" if size == "1" else kind), f"{rank_name}={environment[rank_name]}, {size_name}={size}"
    return "solo", "not started by horovodrun or mpiexec"


def rank_and_size(environment: Mapping[str, str]) -> tuple[int, int]:
    """What the launcher says of this process before it has talked to any other; 0 of 1 where there is no launcher."""
    for _, rank_name, size_name in _LAUNCHERS:
        if rank_name in environment and size_name in environment:
            return int(environment[rank_name]), int(environment[size_name])
    return 0, 1


@cache
def choose_communicator() -> Communicator:
    """This process's communicator, by how it was started; the same object on every call.

    ``horovodrun --gloo`` gives Horovod's world, ``mpiexec`` and ``horovodrun --mpi`` that of MPI (Horovod's too, where
    Horovod is used), anything else a single process. ``XMC_TF_COMMUNICATOR`` (solo, horovod, mpi) overrules. All ranks
    have to call it for the first time together.

    With ``XMC_TF_STALL_TIMEOUT`` (seconds) a rank that waits for others for longer than that ends the run.

    From then on an error that ends one of several ranks ends them all: MPI would have them wait for each other
    forever. The end of the launcher ends them too.

    Raises:
        InputError: when the process is one of several, but nothing through which they could talk can be imported.
    """
    launcher.end_with_it()
    run_records.start()
    kind, reason = how_started(os.environ)
    communicator = _BACKENDS[kind](reason)
    # One process alone is what most users start: nothing to report.
    level = logging.INFO if communicator.rank == 0 and communicator.size > 1 else logging.DEBUG
    log.log(level, "rank %d of %d: %s (%s)", communicator.rank, communicator.size, communicator, reason)
    if communicator.size > 1:
        _end_together(communicator)
        if os.environ.get("XMC_TF_STALL_TIMEOUT"):
            from xmc_tf.ranks.stalls.settings import watch_for_stalls

            watch_for_stalls(communicator)
    return communicator


def _solo(reason: str) -> Communicator:
    from xmc_tf.ranks.solo import Solo

    return Solo()


def _horovod(reason: str) -> Communicator:
    try:
        from xmc_tf.ranks.horovod_backend import HorovodWorld

        return HorovodWorld()
    except ImportError as error:
        raise _alone_among_many(reason, "Horovod with its TensorFlow part", error) from error


def _mpi(reason: str) -> Communicator:
    try:
        from xmc_tf.ranks.mpi_backend import MpiWorld

        return MpiWorld()
    except ImportError as error:
        raise _alone_among_many(reason, "mpi4py", error) from error


def _alone_among_many(reason: str, package: str, error: ImportError) -> InputError:
    # Going on as a single process would make every rank train, and overwrite, the whole model.
    return InputError(
        f"this is one of several processes ({reason}), but they cannot communicate",
        expected=f"{package}, installed for {sys.executable}",
        received=f"{type(error).__name__}: {error}",
        fix="install xmc_tf with its extra 'distributed', or start one process without horovodrun or mpiexec",
    )


_BACKENDS: dict[Kind, Callable[[str], Communicator]] = {"solo": _solo, "horovod": _horovod, "mpi": _mpi}


def _end_together(communicator: Communicator) -> None:
    """Makes an error that nobody catches, and the failure of a command line, end all ranks."""
    before = sys.excepthook

    def abort_after(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> Any:
        if _follows_another(error):
            print("failed: another rank has ended; its last lines give the cause", file=sys.stderr)
        else:
            before(kind, error, trace)
        sys.stderr.flush()
        communicator.abort(1)

    sys.excepthook = abort_after
    cli.on_failure(communicator.abort)


def _follows_another(error: BaseException) -> bool:
    """Whether this is what Horovod and Gloo say on a rank when another one has ended or was killed."""
    text = str(error)
    lost = "Connection closed by peer" in text or "Connection reset by peer" in text
    return "Horovod has been shut down" in text or (lost and "gloo" in text)
