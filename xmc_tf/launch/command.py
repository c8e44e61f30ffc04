"""The command that starts the ranks: ``horovodrun`` with an agent in front of every worker."""

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Literal, NamedTuple

from xmc_tf.common.errors import InputError

Controller = Literal["gloo", "mpi"]


class Host(NamedTuple):
    """A machine and how many ranks it takes."""

    name: str
    slots: int


THIS_HOST = "localhost"


def check_installed(controller: Controller) -> None:
    """Makes sure that what starts the ranks is there.

    Raises:
        InputError: when it is not; before anything has been started.
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
    worker: Sequence[str],
    *,
    start_timeout: int,
    agent: Sequence[str] = (),
) -> list[str]:
    """Return the command for as many ranks as the hosts have slots.

    Example:
        >>> ranks_command([Host("localhost", 2)], "gloo", ["train.py"], start_timeout=60)[3:7]
        ['--gloo', '-np', '2', '-H']

    Args:
        hosts: where, in the order of the ranks.
        controller: what Horovod coordinates the ranks with.
        worker: the command that every rank runs.
        start_timeout: seconds for all to be there.
        agent: options of the agents.
    """
    command = [sys.executable, "-m", "horovod.runner.launch", f"--{controller}"]
    command += ["-np", str(sum(host.slots for host in hosts))]
    command += ["-H", ",".join(f"{host.name}:{host.slots}" for host in hosts)]
    # Its cache remembers for an hour what it found out about hosts that may have changed since.
    command += ["--start-timeout", str(start_timeout), "--disable-cache"]
    if all(host.name == THIS_HOST for host in hosts):
        command += ["--network-interfaces", "lo"]
    return [*command, sys.executable, "-m", "xmc_tf.launch.agent", *agent, "--", *worker]
