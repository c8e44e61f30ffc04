import contextlib
import os
import shlex
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from xmc_tf.common.errors import InputError
from xmc_tf.common.process.extras import pip_install
from xmc_tf.common.process.leftovers import TemporaryFolder
from xmc_tf.launch.hosts import Hosts, is_here
from xmc_tf.launch.node import RUN, START
from xmc_tf.launch.nodes import NodeError, Nodes
from xmc_tf.launch.rank_proxy import LAUNCHER, NODE
from xmc_tf.ranks.channels import Channel

Controller = Literal["gloo", "mpi"]
_PROXY_S = 10.0


def default_controller() -> Controller:
    """Return ``mpi`` if mpi4py is installed and Horovod is not, otherwise ``gloo``."""
    return "mpi" if find_spec("horovod") is None and find_spec("mpi4py") is not None else "gloo"


def check_installed(controller: Controller) -> None:
    """Check that the package that connects the ranks is installed: Horovod for "gloo", mpi4py otherwise."""
    package, name, fix = "mpi4py", "mpiexec with mpi4py", pip_install("mpi")
    if controller == "gloo":
        package, name = "horovod", "Horovod"
        fix += " and use --controller mpi; or install the extra 'distributed' (make setup)"
    if find_spec(package) is None:
        raise InputError(
            f"{name} is not installed for {sys.executable}, but is needed to connect several ranks", fix=fix
        )


def start_gloo(hosts: Hosts, nodes: Nodes) -> Callable[[], object]:
    """Let the nodes start the ranks, which find each other by Horovod's rendezvous server; return what ends that."""
    runner = import_module("horovod.runner.common.util.hosts")
    slots = runner.get_host_assignments(runner.parse_hosts(hosts.as_flag()), hosts.size)
    server = import_module("horovod.runner.http.http_server").RendezvousServer()
    port = server.start()
    server.init(slots)
    for slot in slots:
        names = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")
        environment = {f"HOROVOD_{name.upper()}": str(getattr(slot, name)) for name in names}
        environment |= {"HOROVOD_HOSTNAME": slot.hostname, "HOROVOD_CONTROLLER": "gloo"}
        environment |= {"HOROVOD_CPU_OPERATIONS": "gloo", "HOROVOD_GLOO_RENDEZVOUS_ADDR": nodes.address}
        environment["HOROVOD_GLOO_RENDEZVOUS_PORT"] = str(port)
        nodes[slot.hostname].send(START, environment=environment)
    stop: Callable[[], object] = server.stop
    return stop


class Mpi:
    """mpiexec starts proxies, which ask the node process on each host to start daemons and ranks."""

    def __init__(self, hosts: Hosts, nodes: Nodes, environment: Mapping[str, str]) -> None:
        self._nodes = nodes
        self.tail: deque[str] = deque(maxlen=30)  # the last lines of mpiexec
        self._proxies: list[tuple[str, Channel]] = []  # with their hosts, by the number of the command
        self._folder = TemporaryFolder()  # readable by this user only
        path = str(Path(self._folder.name, "launcher"))
        self._environment = {**environment, LAUNCHER: path}
        for host in hosts:
            if is_here(host.name):
                self._environment[NODE] = nodes[host.name].proxies
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(path)
        self._server.listen(1024)
        networks = sorted({nodes[host.name].network for host in hosts} - {""})
        self._process = subprocess.Popen(
            mpiexec_command(hosts, networks), env=self._environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches only this process, which stops the ranks
        )  # fmt: skip
        for target in (self._read, self._accept):
            threading.Thread(target=target, daemon=True).start()

    def status(self) -> int | None:
        """Return the exit status of mpiexec, or None if it is running."""
        return self._process.poll()

    def finish(self, number: int, status: int, lines: list[str]) -> None:
        """End the proxy of a command, which has ended."""
        self.tail.extend(lines)
        with contextlib.suppress(OSError):
            self._proxies[number][1].send(status=status)

    def lose(self, host: str) -> None:
        for name, proxy in self._proxies:
            if name == host:
                proxy.close()

    def close(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.terminate()
            self._process.wait(5)
        self._process.kill()
        self._process.wait()
        self._server.close()
        for _, proxy in self._proxies:
            proxy.close()
        self._folder.cleanup()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            self.tail.extend(text for line in stream if (text := line.decode(errors="replace").strip()))

    def _accept(self) -> None:
        """Forward the commands of the proxies to the nodes."""
        with contextlib.suppress(OSError):  # the server is closed
            while True:
                proxy = Channel(self._server.accept()[0])
                with contextlib.suppress(OSError):
                    request = proxy.receive(_PROXY_S)
                    self._proxies.append((request["host"], proxy))
                    try:
                        node = self._nodes[request["host"]]
                    except NodeError:
                        proxy.close()  # as lose() does: mpiexec sees that the host is lost
                        continue
                    node.send(RUN, number=len(self._proxies) - 1, line=request["line"])


def mpiexec_command(hosts: Hosts, networks: Sequence[str] = ()) -> list[str]:
    """Return the command that starts a proxy for each slot of the hosts. MPI uses ``networks`` (default: all)."""
    if hosts.only_here:
        networks = ["lo"]
    command = [str(Path(sys.executable).with_name("mpiexec")), "--allow-run-as-root"]
    command += ["-n", str(hosts.size), "--host", hosts.as_flag(), "--bind-to", "none", "--map-by", "slot"]
    usual = {"pml": "ob1", "btl": "^openib"}  # InfiniBand's old driver prints warnings on hosts without it
    settings = {name: value for name, value in usual.items() if f"OMPI_MCA_{name}" not in os.environ}
    if networks:
        # Other interfaces, such as those of containers, lead nowhere.
        settings |= {"btl_tcp_if_include": ",".join(networks), "oob_tcp_if_include": ",".join(networks)}
    proxy = [sys.executable, "-m", "xmc_tf.launch.rank_proxy"]
    if not hosts.only_here:
        # In a job of Slurm, Open MPI would start the ranks by srun, and refuse hosts that have other names in Slurm.
        settings |= {"plm": "rsh", "ras": "^slurm", "plm_rsh_agent": shlex.join(proxy)}
        # All connections start here, and end with a host that is lost.
        settings |= {"plm_rsh_no_tree_spawn": "1", "plm_rsh_num_concurrent": str(len(hosts))}
        settings |= {"oob_tcp_keepalive_time": "5", "oob_tcp_keepalive_intvl": "3", "oob_tcp_keepalive_probes": "3"}
        command.append("--leave-session-attached")
    for name, value in settings.items():
        command += ["--mca", name, value]
    return [*command, *proxy]
