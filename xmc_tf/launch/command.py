"""The command that starts the ranks: ``horovodrun`` or ``mpiexec`` with the agent, which runs the program."""

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from xmc_tf.common.errors import InputError
from xmc_tf.launch.hosts.hosts import Hosts

Controller = Literal["gloo", "mpi"]


def default_controller() -> Controller:
    """Return ``mpi`` where Horovod is not installed but mpi4py is, otherwise ``gloo``."""
    return "mpi" if find_spec("horovod") is None and find_spec("mpi4py") is not None else "gloo"


def check_installed(controller: Controller) -> None:
    """Check that the package that starts the ranks is installed: Horovod, or mpi4py beside ``mpiexec``.

    Raises:
        InputError: it is missing.
    """
    package, name, fix = {
        "gloo": (
            "horovod",
            "Horovod",
            "pip install 'xmc_tf[mpi]' and use --controller mpi; or install the extra 'distributed' (make setup)",
        ),
        "mpi": ("mpi4py", "mpiexec with mpi4py", "pip install 'xmc_tf[mpi]'"),
    }[controller]
    if find_spec(package) is None:
        raise InputError(
            f"several processes are started by {name}, which is not installed for {sys.executable}", fix=fix
        )


def ranks_command(
    hosts: Hosts,
    controller: Controller,
    program: Sequence[str],
    *,
    start_timeout: int,
    agent: Sequence[str] = (),
    interface: str | None = None,
    networks: Sequence[str] = (),
    remote_shell: str = "",
    exported: Sequence[str] = (),
) -> list[str]:
    """Return the command that starts a rank for each slot of the hosts.

    Example:
        >>> ranks_command(Hosts([Host("localhost", 2)]), "gloo", ["train.py"], start_timeout=60)[3:7]
        ['--gloo', '-np', '2', '-H']

    Args:
        hosts: the hosts, in the order of the ranks.
        controller: gloo for Horovod, mpi for mpi4py.
        program: the command that each rank runs.
        start_timeout: the maximum seconds until all ranks have started.
        agent: options of the agent.
        interface: this host's network interface towards the others; the agents choose theirs.
        networks: the networks that MPI uses; default: all.
        remote_shell: the program by which mpiexec reaches other hosts; default: ssh.
        exported: the variables that mpiexec passes on to other hosts; horovodrun passes on all.
    """
    started = [sys.executable, "-m", "xmc_tf.launch.agent", *agent, "--", *program]
    if hosts.only_here:
        interface, networks = "lo", ["lo"]
    if controller == "mpi":
        return [*_mpiexec(hosts, networks, remote_shell, exported), *started]
    command = [sys.executable, "-m", "horovod.runner.launch", "--gloo", "-np", str(hosts.size), "-H", hosts.as_flag()]
    # horovodrun caches its checks of the hosts for an hour, in which these may change.
    command += ["--start-timeout", str(start_timeout), "--disable-cache"]
    return [*command, *(["--network-interfaces", interface] if interface else []), *started]


def _mpiexec(hosts: Hosts, networks: Sequence[str], remote_shell: str, exported: Sequence[str]) -> list[str]:
    command = [str(Path(sys.executable).with_name("mpiexec")), "--allow-run-as-root", "--tag-output"]
    command += ["-n", str(hosts.size), "--host", hosts.as_flag(), "--bind-to", "none", "--map-by", "slot"]
    settings = {"pml": "ob1", "btl": "^openib"}  # InfiniBand's old driver prints warnings on hosts without it
    if networks:
        # Other interfaces, such as those of containers, lead nowhere.
        settings |= {"btl_tcp_if_include": ",".join(networks), "oob_tcp_if_include": ",".join(networks)}
    if not hosts.only_here:
        # In a job of Slurm, Open MPI would start the ranks by srun, and refuse hosts that Slurm calls differently.
        settings |= {"plm": "rsh", "ras": "^slurm"}
        # All connections start here, and end with a host that is lost.
        settings |= {"plm_rsh_no_tree_spawn": "1", "plm_rsh_num_concurrent": str(len(hosts))}
        settings |= {"oob_tcp_keepalive_time": "5", "oob_tcp_keepalive_intvl": "3", "oob_tcp_keepalive_probes": "3"}
        command.append("--leave-session-attached")
    if remote_shell:
        settings["plm_rsh_agent"] = remote_shell
    for name, value in settings.items():
        command += ["--mca", name, value]
    for name in exported:
        command += ["-x", name]
    return command
