"""The way to run a shell command on another host: ssh, or the relay to a node that was started by hand."""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from xmc_tf.launch.remote.interfaces import address_towards


class Shell(Protocol):
    """A way to run shell commands on other hosts."""

    def command(self, host: str, line: str) -> list[str]:
        """Return the local command that runs a line in a shell of ``host``, with the streams of that command."""

    @property
    def program(self) -> str:
        """The local program that takes host and line as its last arguments, for mpiexec."""

    def environment(self) -> dict[str, str]:
        """Return the variables with which horovodrun uses this shell."""

    def address_here(self, hosts: Sequence[str]) -> str:
        """Return the address at which the hosts reach this one."""


class Ssh:
    """Commands over ssh, without passwords.

    Args:
        timeout_s: the maximum seconds of the checks, of which a third is for connecting.
    """

    def __init__(self, timeout_s: float) -> None:
        options = ["BatchMode=yes", "StrictHostKeyChecking=accept-new", f"ConnectTimeout={max(1, int(timeout_s / 3))}"]
        # The client ends when the other host is lost.
        options += [f"ServerAliveInterval={max(1, int(timeout_s / 3))}", "ServerAliveCountMax=2", "LogLevel=ERROR"]
        self._command = ["ssh", *(word for option in options for word in ("-o", option))]

    @property
    def program(self) -> str:
        """The program with its options."""
        return shlex.join(self._command)

    def environment(self) -> dict[str, str]:
        """Return no variables: horovodrun uses ssh anyway."""
        return {}

    def address_here(self, hosts: Sequence[str]) -> str:
        """Return this host's address on the route to the first of the other hosts."""
        return address_towards(hosts)

    def command(self, host: str, line: str) -> list[str]:
        """Return the ssh command."""
        return [*self._command, host, line]


def python_line(module: str, arguments: Sequence[str] = ()) -> str:
    """Return the shell line that runs a module of this package in this folder, with this Python, on another host.

    The host's own ``PYTHONPATH`` stays, behind ours.
    """
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(Path(__file__).resolve().parents[3])]))
    # An installed package is found without the variable, which would only hide a different version.
    ours = "" if "site-packages" in path else f'PYTHONPATH={shlex.quote(path)}"${{PYTHONPATH:+:$PYTHONPATH}}" '
    command = shlex.join([sys.executable, "-m", module, *arguments])
    return f"cd {shlex.quote(os.getcwd())} && {ours}exec {command}"
