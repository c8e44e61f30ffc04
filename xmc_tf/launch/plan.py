import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from xmc_tf.launch.checks import align
from xmc_tf.launch.engines import Controller
from xmc_tf.launch.hosts import Hosts, is_here
from xmc_tf.ranks.choosing import CONNECT_TIMEOUT
from xmc_tf.ranks.stalls.watch import VARIABLE as STALL_TIMEOUT

_CONNECT = 4  # times the limit for the start of all ranks: those that have started may load much before they connect


@dataclass(frozen=True)
class LaunchPlan:
    """The plan of a run: its hosts, GPUs, program and environment."""

    hosts: Hosts
    controller: Controller
    program: Sequence[str]
    timeout_s: int = 60  # until all ranks have started, and until a lost host is noticed
    gpus: Mapping[str, Sequence[str]] = field(default_factory=dict)  # by host, in the order of the local ranks
    threads: int | None = None  # of each rank; None for one per core of the rank
    pin: bool = True  # ranks to their share of the cores
    stall_timeout_s: int | None = None

    def environment(self) -> dict[str, str]:
        # mpiexec, and other programs of ours, are installed beside the interpreter.
        found = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
        found[CONNECT_TIMEOUT] = str(_CONNECT * self.timeout_s)
        if self.stall_timeout_s:
            # Horovod's own stall check, which only works over MPI, serves programs that do not use ours.
            names = ("HOROVOD_STALL_CHECK_TIME_SECONDS", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS")
            found |= {STALL_TIMEOUT: str(self.stall_timeout_s)} | dict.fromkeys(names, str(self.stall_timeout_s + 10))
        return found

    def describe(self) -> str:
        lines = [f"{count(self.hosts.size, 'rank')} on {count(len(self.hosts), 'host')}, with {self.engine}", ""]
        rows, first = [("host", "ranks", "GPUs", "reached")], 0
        for host in self.hosts:
            ranks = str(first) if host.slots == 1 else f"{first}-{first + host.slots - 1}"
            here = is_here(host.name)
            most = "none" if here else f"the {host.slots} least busy, if any"
            gpus = ",".join(self.gpus.get(host.name, ())) or most
            rows.append((host.name, ranks, gpus, "this host" if here else "ssh"))
            first += host.slots
        return "\n".join([*lines, *align(rows), "", self.describe_settings()])

    @property
    def engine(self) -> str:
        return {"gloo": "Horovod over Gloo", "mpi": "mpiexec over MPI"}[self.controller]

    def describe_settings(self) -> str:
        threads = "one per core of the rank" if self.threads is None else str(self.threads)
        lines = [
            f"folder:  {os.getcwd()}",
            f"program: {shlex.join(self.program)}",
            f"threads: {threads}; ranks are {'' if self.pin else 'not '}pinned to cores",
            f"limit:   {self.timeout_s} s until all ranks have started",
        ]
        more = {name: value for name, value in self.environment().items() if name not in ("PATH", CONNECT_TIMEOUT)}
        return "\n".join([*lines, *(f"sets:    {name}={value}" for name, value in more.items())])


def lost_after(timeout_s: float) -> float:
    """Return after how many seconds without an answer a host counts as lost and its ranks must have ended."""
    return max(4.0, timeout_s / 4)


def count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
