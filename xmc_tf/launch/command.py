"""The command that starts the ranks: ``horovodrun`` with the agent, which runs the program."""

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Literal, NamedTuple

from xmc_tf.common.errors import InputError

Controller = Literal["gloo", "mpi"]


class Host(NamedTuple):
    """A host, and its number of ranks."""

    name: str
    slots: int


THIS_HOST = "localhost"


def check_installed(controller: Controller) -> None:
    """Check that Horovod and, for MPI, mpi4py are installed.

    Raises:
        InputError: a package is missing.
    """
    needed = {"horovod": "Horovod"} | ({"mpi4py": "mpi4py"} if controller == "mpi" else {})
    for package, name in needed.items():
        if find_spec(package) is None:
            raise InputError(
                f"several processes are started by {name}, which is not installed for {sys.executable}",
                fix="install xmc_tf with its extra 'distributed'",
            )


def ranks_command(
    hosts: Sequence[Host],
    controller: Controller,
    program: Sequence[str],
    *,
    start_timeout: int,
    agent: Sequence[str] = (),
) -> list[str]:
    """Return the command that starts a rank for each slot of the hosts.

    Example:
        >>> ranks_command([Host("localhost", 2)], "gloo", ["train.py"], start_timeout=60)[3:7]
        ['--gloo', '-np', '2', '-H']

    Args:
        hosts: the hosts, in the order of the ranks.
        controller: how Horovod coordinates the ranks.
        program: the command that each rank runs.
        start_timeout: the maximum seconds until all ranks have started.
        agent: options of the agent.
    """
    command = [sys.executable, "-m", "horovod.runner.launch", f"--{controller}"]
    command += ["-np", str(sum(host.slots for host in hosts))]
    command += ["-H", ",".join(f"{host.name}:{host.slots}" for host in hosts)]
    # horovodrun caches its checks of the hosts for an hour, in which these may change.
    command += ["--start-timeout", str(start_timeout), "--disable-cache"]
    if all(host.name == THIS_HOST for host in hosts):
        command += ["--network-interfaces", "lo"]
    return [*command, sys.executable, "-m", "xmc_tf.launch.agent", *agent, "--", *program]
