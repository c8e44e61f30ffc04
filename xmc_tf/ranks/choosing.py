"""Selection of the communicator (single process, Horovod or MPI) by how this process was started."""

import logging
import os
import signal
import sys
import time
from collections.abc import Mapping
from functools import cache
from types import TracebackType
from typing import Any, Literal

from xmc_tf.common.errors import InputError
from xmc_tf.common.process import cli, launcher, leftovers
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.this_host import has_gpu

log = logging.getLogger(__name__)

# A variable of the launcher: seconds after which SIGALRM ends a rank that has not reached the others.
CONNECT_TIMEOUT = "XMC_TF_CONNECT_TIMEOUT"
# Seconds in which rank 0 shows an error that all ranks raise.
_SHOWN_BY_RANK_0 = 10.0

Kind = Literal["solo", "horovod", "mpi"]

# The variables in which launchers pass rank and size.
_LAUNCHERS: tuple[tuple[Kind, str, str], ...] = (
    ("horovod", "HOROVOD_RANK", "HOROVOD_SIZE"),
    ("mpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("mpi", "PMI_RANK", "PMI_SIZE"),
    ("mpi", "PMIX_RANK", "PMIX_SIZE"),
)
_NOT_BY_HOROVODRUN = "started by mpiexec, or told to use mpi4py"
# Both are set on all ranks by ``horovodrun`` over MPI, which labels the ranks' output and chooses the network.
_HOROVODRUN_OVER_MPI = {"OMPI_MCA_orte_tag_output", "NCCL_SOCKET_IFNAME"}


def how_started(environment: Mapping[str, str]) -> tuple[Kind, str]:
    """Return the kind of communicator that the environment variables require, and the variables that decided this."""
    forced = environment.get("XMC_TF_COMMUNICATOR")
    if forced:
        if forced not in ("solo", "horovod", "mpi"):
            raise InputError("unknown XMC_TF_COMMUNICATOR", expected="solo, horovod or mpi", received=repr(forced))
        return forced, f"XMC_TF_COMMUNICATOR={forced}"  # type: ignore[return-value]
    for kind, rank_name, size_name in _LAUNCHERS:
        if rank_name in environment:
            size = environment.get(size_name, "?")
            return ("solo" if size == "1" else kind), f"{rank_name}={environment[rank_name]}, {size_name}={size}"
    return "solo", "not started by horovodrun or mpiexec"


@cache
def choose_communicator() -> Communicator:
    """Return this process's communicator. All ranks must make the first call; later calls return the same object.

    Processes started by ``horovodrun`` over Gloo use Horovod; so do those started by ``horovodrun`` over MPI, if all of
    them have GPUs and Horovod has NCCL. Others started by MPI (``mpiexec``, ``srun``) use mpi4py. All others run alone.
    ``$XMC_TF_COMMUNICATOR`` overrides this. Afterwards, all ranks end if one has an error, if their launcher ends, or
    if one stalls for longer than ``$XMC_TF_STALL_TIMEOUT`` (if set).
    """
    launcher.end_with_launcher()
    leftovers.remove_leftovers()
    kind, reason = how_started(os.environ)
    communicator, reason = _backend(kind, reason)
    # Most runs have a single process, which is not worth a line.
    level = logging.INFO if communicator.rank == 0 and communicator.size > 1 else logging.DEBUG
    log.log(level, "rank %d of %d: %s (%s)", communicator.rank, communicator.size, communicator, reason)
    if communicator.size > 1:
        _abort_all_on_failure(communicator)
        if os.environ.get("XMC_TF_STALL_TIMEOUT"):
            from xmc_tf.ranks.stalls.watch import watch_for_stalls

            watch_for_stalls(communicator)
    return communicator


def _backend(kind: Kind, reason: str) -> tuple[Communicator, str]:
    if kind == "solo":
        from xmc_tf.ranks.solo import Solo

        return Solo(), reason
    # MPI and Horovod would wait forever, without running Python code, if a stranger connects to one of their ports.
    signal.setitimer(signal.ITIMER_REAL, float(os.environ.get(CONNECT_TIMEOUT) or 0))
    try:
        if kind == "mpi":
            from xmc_tf.ranks.mpi_backend import MpiCommunicator

            return _with_nccl(MpiCommunicator(), reason)
        from xmc_tf.ranks.stalls.watch import outlast_stalls

        outlast_stalls(os.environ)
        from xmc_tf.ranks.horovod_backend import HorovodCommunicator

        return HorovodCommunicator(), reason
    except ImportError as error:
        # As single processes, all ranks would train the whole model and overwrite each other's files.
        package, extra = ("mpi4py", "mpi") if kind == "mpi" else ("Horovod with its TensorFlow part", "distributed")
        raise InputError(
            f"this is one of several processes ({reason}), but they cannot communicate",
            expected=f"{package}, installed for {sys.executable}",
            received=f"{type(error).__name__}: {error}",
            fix=f"install xmc_tf with its extra '{extra}', or start one process without horovodrun or mpiexec",
        ) from error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _with_nccl(world: Communicator, reason: str) -> tuple[Communicator, str]:
    """Return Horovod's communicator if all ranks could use NCCL, else the one of MPI. All ranks must call it.

    Ranks agree over mpi4py, which must be loaded first (see ``mpi.py``), and is not used any more beside Horovod.
    """
    skip_reasons = world.allgather(_obstacle_to_nccl())
    if _NOT_BY_HOROVODRUN in skip_reasons:
        return world, reason
    if found := sorted(set(filter(None, skip_reasons))):
        ranks = "" if all(skip_reasons) else f" (rank {next(r for r, one in enumerate(skip_reasons) if one)})"
        return world, f"{reason}, by horovodrun; not Horovod, because there is {' or '.join(found)}{ranks}"
    from xmc_tf.ranks.horovod_backend import HorovodCommunicator

    return HorovodCommunicator(), f"{reason}, by horovodrun; all ranks have GPUs, and Horovod has NCCL"


def _obstacle_to_nccl() -> str:
    """Return what prevents this rank from using Horovod with NCCL: "" if nothing does."""
    if not os.environ.keys() >= _HOROVODRUN_OVER_MPI or "XMC_TF_COMMUNICATOR" in os.environ:
        return _NOT_BY_HOROVODRUN
    if not has_gpu(os.environ):
        return "no GPU"
    try:
        from xmc_tf.ranks.horovod_backend import hvd
    except ImportError:
        return "no Horovod"
    return "" if hvd.nccl_built() else "no NCCL in Horovod"


def _abort_all_on_failure(communicator: Communicator) -> None:
    """Install hooks that end all ranks if this one has an uncaught exception or its command fails."""
    before = sys.excepthook

    def abort_after(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> Any:
        text = str(error)
        lost = "gloo" in text and ("Connection closed by peer" in text or "Connection reset by peer" in text)
        if lost or "Horovod has been shut down" in text:
            from xmc_tf.ranks.stalls.watch import silent_ranks

            ended = "another rank has ended, or did not answer for too long; the last lines of each rank give the cause"
            print(f"failed: {'; '.join(silent_ranks()) or ended}", file=sys.stderr)
        elif isinstance(error, InputError) and error.on_all_ranks:
            if communicator.rank == 0:
                print(f"failed: {error}", file=sys.stderr)
            else:
                time.sleep(_SHOWN_BY_RANK_0)  # it also ends this rank
        else:
            before(kind, error, trace)
        sys.stderr.flush()
        communicator.abort(1)

    sys.excepthook = abort_after
    cli.on_failure(communicator.abort)
