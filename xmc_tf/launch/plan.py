"""The plan of a run: which command runs on which host, with which environment."""

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from xmc_tf.launch.command import Controller, ranks_command
from xmc_tf.launch.hosts.hosts import Host, Hosts, is_here
from xmc_tf.launch.messages import GPUS
from xmc_tf.ranks.stalls.settings import VARIABLE as STALL_TIMEOUT


@dataclass(frozen=True)
class LaunchPlan:
    """The assignment of a run's ranks to hosts and GPUs.

    Args:
        hosts: the hosts, in the order of the ranks.
        controller: gloo for Horovod, mpi for mpi4py.
        program: the command of each rank.
        timeout_s: the maximum seconds until all ranks have started, and until a host that is lost is noticed.
        gpus: the GPUs of each host that its ranks use, in the order of the local ranks; empty for CPUs.
        agent: options of the agents.
        stall_timeout_s: the limit of a collective without progress.
    """

    hosts: Hosts
    controller: Controller
    program: Sequence[str]
    timeout_s: int = 60
    gpus: Mapping[str, Sequence[str]] = field(default_factory=dict)
    agent: Sequence[str] = ()
    stall_timeout_s: int | None = None

    @property
    def agent_options(self) -> list[str]:
        """The options of each rank's agent."""
        lost = [] if self.hosts.only_here else ["--lost-after", f"{self.lost_after_s:g}"]
        return [*self.agent, *lost]

    @property
    def lost_after_s(self) -> float:
        """The seconds without an answer after which a host is lost; its ranks must also end within the timeout."""
        return max(4.0, self.timeout_s / 4)

    def environment(self) -> dict[str, str]:
        """Return the variables of the ranks, in addition to those of this process."""
        # The mpirun that Horovod needs is installed beside the interpreter.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        found = {"PATH": path}
        if any(self.gpus.values()):
            found[GPUS] = ";".join(
                ",".join(self.gpus.get(host.name, ())) for host in self.hosts for _ in range(host.slots)
            )
        if self.stall_timeout_s:
            # Horovod's own stall check, which only works over MPI, serves programs that do not use ours.
            later = str(self.stall_timeout_s + 10)
            found |= {
                STALL_TIMEOUT: str(self.stall_timeout_s),
                "HOROVOD_STALL_CHECK_TIME_SECONDS": later,
                "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": later,
            }
        return found

    def command(
        self,
        interface: str | None = None,
        networks: Sequence[str] = (),
        remote_shell: str = "",
        exported: Sequence[str] = (),
    ) -> list[str]:
        """Return the command that starts all ranks.

        Args:
            interface: this host's network interface towards the others.
            networks: the networks of all hosts' interfaces.
            remote_shell: the program that runs commands on other hosts.
            exported: the variables that other hosts need.
        """
        return ranks_command(
            self.hosts, self.controller, self.program, start_timeout=self.timeout_s, agent=self.agent_options,
            interface=interface, networks=networks, remote_shell=remote_shell, exported=exported,
        )  # fmt: skip

    def describe(self) -> str:
        """Return the plan as text, for ``--dry-run``."""
        runner = {"gloo": "horovodrun over Gloo", "mpi": "mpiexec over MPI"}[self.controller]
        lines = [f"{count(self.hosts.size, 'rank')} on {count(len(self.hosts), 'host')}, started by {runner}", ""]
        rows = [("host", "ranks", "GPUs", "reached")] + [self._row(host) for host in self.hosts]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines += [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
        ]
        lines += ["", f"folder:  {os.getcwd()}", f"program: {shlex.join(self.program)}"]
        more = {name: value for name, value in self.environment().items() if name != "PATH"}
        lines += [f"sets:    {name}={value}" for name, value in more.items()]
        return "\n".join([*lines, f"command: {shlex.join(self.command())}"])

    def _row(self, host: Host) -> tuple[str, str, str, str]:
        first = self.hosts.first_rank(host)
        ranks = str(first) if host.slots == 1 else f"{first}-{first + host.slots - 1}"
        here = is_here(host.name)
        gpus = ",".join(self.gpus.get(host.name, ())) or ("none" if here else f"the {host.slots} least busy, if any")
        return host.name, ranks, gpus, "this host" if here else "ssh"


def count(number: int, what: str) -> str:
    """Return a number with its noun.

    Example:
        >>> count(2, "rank")
        '2 ranks'
    """
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
