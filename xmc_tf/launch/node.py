"""A node: a process that checks its host and starts the ranks there, and stops them if the launcher is lost."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import IO, Any

import numpy as np

from xmc_tf.common.process.leftovers import TemporaryFolder
from xmc_tf.launch import host_probe
from xmc_tf.launch.rank_proxy import NODE, die_with_parent
from xmc_tf.ranks.channels import Channel, connect, interfaces

# To the launcher: HELLO once, ANSWER to each ASK; STARTED, LINE and END of a rank; DONE of a command.
HELLO, ANSWER, STARTED, LINE, END, DONE = "hello", "answer", "started", "line", "end", "done"
# From the launcher: ASK; JOB with what the ranks of a run have in common, and START for each; RUN a command; STOP all;
# and EXIT at the end.
ASK, JOB, START, RUN, STOP, EXIT = "ask", "job", "start", "run", "stop", "exit"
_CANNOT_START = 127  # as in a shell
_STAND_IN_S = 10.0  # time limit for the request of a proxy
_PROBES = 3
# The variables that parallel libraries read at their start.
_OF_HOROVOD = ("HOROVOD_RANK", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE")
_OF_MPI = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE")
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
PATIENCE_S = 5.0  # between SIGTERM and SIGKILL
_LONGEST_LINE = 1 << 16


class Child:
    """A process in its own session. It ends with the thread that starts it, and its output is shown line by line.

    ``show`` is called with "out" or "err" and each line. At the end, ``ended`` is called in another thread with the
    exit status (negative for a signal).
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        show: Callable[[str, str], object],
        ended: Callable[[int], object],
        cores: Sequence[int] | None = None,
    ) -> None:
        self.stopping, self.gone = threading.Event(), threading.Event()  # told to stop; ended, which has been reported
        self._show, self._ended = show, ended

        def prepare() -> None:
            die_with_parent()
            if cores is not None:
                os.sched_setaffinity(0, cores)

        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,  # so that its child processes can be ended with it
            preexec_fn=prepare,
        )  # fmt: skip
        self.pid = self._process.pid

    def follow(self) -> None:
        threading.Thread(target=self._wait, daemon=True).start()

    def stop(self) -> None:
        """Send SIGTERM to the process and its children, and later SIGKILL if it is still running."""
        if self.stopping.is_set():
            return
        self.stopping.set()
        self._signal(signal.SIGTERM)
        threading.Thread(target=self._kill_later, daemon=True).start()

    def _kill_later(self) -> None:
        if not self.gone.wait(PATIENCE_S):
            self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def _wait(self) -> None:
        readers = [
            threading.Thread(target=self._forward, args=(stream, name), daemon=True)
            for stream, name in ((self._process.stdout, "out"), (self._process.stderr, "err"))
        ]
        for reader in readers:
            reader.start()
        status = self._process.wait()
        self._signal(signal.SIGKILL)  # child processes that are still running end too
        for reader in readers:
            reader.join(timeout=2)  # child processes in other sessions may keep the output open
        self._ended(status)
        self.gone.set()

    def _forward(self, stream: IO[bytes], name: str) -> None:
        for line in iter(lambda: stream.readline(_LONGEST_LINE), b""):
            self._show(name, line.decode(errors="replace").rstrip("\n"))


class HostNode:
    # slots: the ranks of this node, if the launcher does not know them; lost_after_s: 0 for a launcher on this host
    def __init__(self, launcher: Channel, number: int, *, slots: int = 0, lost_after_s: float = 0.0) -> None:
        self._launcher = launcher
        if lost_after_s:
            end_when_lost(self._launcher, lost_after_s)
        self._job: dict[str, Any] = {}
        self._children: list[Child] = []
        self._by_proxy: dict[Channel, Child] = {}
        self._folder = TemporaryFolder()  # readable by this user only
        self._proxies = socket.socket(socket.AF_UNIX)
        self._proxies.bind(path := str(Path(self._folder.name, "node")))
        self._proxies.listen(1024)
        self._address = self._launcher.socket.getsockname()[0]
        self._interface, network = interfaces().get(self._address, ("", ""))
        self._send(HELLO, number=number, slots=slots, network=network, proxies=path)

    def serve(self) -> int | None:
        """Serve the launcher until it ends. Return the run's exit status, or None if the connection was lost."""
        with contextlib.suppress(OSError):
            while True:
                proxies = (one.fileno() for one in self._by_proxy)
                ready = wait([self._launcher.fileno(), self._proxies.fileno(), *proxies])
                for proxy in [one for one in self._by_proxy if one.fileno() in ready]:
                    self._by_proxy.pop(proxy).stop()  # the proxy has ended
                    proxy.close()
                if self._proxies.fileno() in ready:
                    self._welcome(Channel(self._proxies.accept()[0]))
                if self._launcher.fileno() in ready:
                    message = self._launcher.receive()
                    if message["kind"] == EXIT:
                        return int(message["status"])
                    self._handle(message)
        return None

    def close(self) -> None:
        for child in self._children:
            child.stop()
        end = time.monotonic() + 2 * PATIENCE_S
        for child in self._children:
            child.gone.wait(max(0.0, end - time.monotonic()))
        self._launcher.close()
        self._proxies.close()
        self._folder.cleanup()

    def _handle(self, message: dict[str, Any]) -> None:
        kind = message["kind"]
        if kind == ASK:
            self._answer(message["step"], message["fields"])
        elif kind == JOB:
            self._job = message
        elif kind == START:
            with contextlib.suppress(OSError):  # it has been reported
                self._start({**os.environ, **self._job["environment"], **message["environment"]}, None)
        elif kind == RUN:
            self._run(message["number"], message["line"])
        elif kind == STOP:
            for child in self._children:
                child.stop()

    def _answer(self, step: str, fields: dict[str, Any]) -> None:
        try:
            if step == "look":
                answer = host_probe.look(**fields, address=self._address)
            else:
                answer = host_probe.connect(**fields)
        except (OSError, ValueError) as error:
            answer = {"error": str(error)}
        self._send(ANSWER, answer=answer)

    def _welcome(self, proxy: Channel) -> None:
        try:
            self._by_proxy[proxy] = self._start(proxy.receive(_STAND_IN_S)["environment"], proxy)
        except OSError:
            proxy.close()

    def _start(self, environment: Mapping[str, str], proxy: Channel | None) -> Child:
        """Start a rank. Environment variables give its number and its number on this host."""
        horovod = "HOROVOD_RANK" in environment
        rank, local_rank, local_size = (int(environment[name]) for name in (_OF_HOROVOD if horovod else _OF_MPI))
        of = {"run": self._job["run"], "rank": rank}
        available = sorted(os.sched_getaffinity(0))
        cores, gpus = divide(available, local_size)[local_rank], self._job["gpus"]
        threads = self._job["threads"] or (len(cores) if local_size <= len(available) else 1)
        # Output is unbuffered, and a fatal signal prints a traceback.
        environment = {"PYTHONFAULTHANDLER": "1", **environment, "PYTHONUNBUFFERED": "1"}
        environment = {name: str(threads) for name in _THREAD_VARIABLES} | environment  # user settings are kept
        if self._interface:  # its name may differ between hosts
            environment |= {"HOROVOD_GLOO_IFACE": self._interface, "NCCL_SOCKET_IFNAME": self._interface}
        if local_rank < len(gpus):
            environment["CUDA_VISIBLE_DEVICES"] = gpus[local_rank]

        def ended(status: int) -> None:
            self._send(END, **of, status=status, stopped=child.stopping.is_set())
            if proxy is not None:
                if status:
                    # mpiexec then stops the other ranks; wait, so that other failures are reported first.
                    child.stopping.wait(PATIENCE_S)
                with contextlib.suppress(OSError):  # it has been killed
                    proxy.send(status=_exit_code(status))

        def show(stream: str, text: str) -> None:
            self._send(LINE, **of, stream=stream, text=text)

        pinned = cores if self._job["pin"] else available
        try:
            child = Child(self._job["program"], environment, cores=pinned, show=show, ended=ended)
        except OSError as error:
            self._send(STARTED, **of, host=socket.gethostname(), pid=0)
            show("err", str(error))
            self._send(END, **of, status=_CANNOT_START, stopped=False)
            raise
        self._send(STARTED, **of, host=socket.gethostname(), pid=child.pid)
        self._children.append(child)
        child.follow()
        return child

    def _run(self, number: int, line: str) -> None:
        """Run a command line with which mpiexec starts its processes on this host."""
        last, run = deque[str](maxlen=20), self._job["run"]

        def ended(status: int) -> None:
            self._send(DONE, run=run, number=number, status=_exit_code(status), lines=list(last))

        environment = {**os.environ, **self._job["environment"], NODE: self._proxies.getsockname()}
        command = ["/bin/sh", "-c", line]
        child = Child(command, environment, show=lambda _, text: last.append(text), ended=ended)
        self._children.append(child)
        child.follow()

    def _send(self, kind: str, **fields: Any) -> None:
        # The launcher may have ended, in which case the processes are being stopped.
        with contextlib.suppress(OSError):
            self._launcher.send(kind=kind, **fields)


def end_when_lost(channel: Channel, timeout_s: float) -> None:
    """Make the kernel close the connection if the other host answers no probes for about ``timeout_s`` seconds."""
    every, connection = max(1, int(timeout_s / (_PROBES + 1))), channel.socket
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, every)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, every)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
    # While sent data are not acknowledged, the kernel sends no probes, and only this limit applies.
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(timeout_s * 1000))


def divide(cores: Sequence[int], ranks: int) -> list[list[int]]:
    """Return adjacent cores for each rank, as evenly as possible, or all cores if there are more ranks than cores."""
    if ranks > len(cores):
        return [list(cores)] * ranks
    return [part.tolist() for part in np.array_split(cores, ranks)]


def _exit_code(status: int) -> int:
    return 128 - status if status < 0 else status


def main() -> None:
    """Connect to the launcher. Its address, this node's number and two limits are on the command line."""
    host, port, number, timeout_s, lost_after_s = sys.argv[1:]
    secret = bytes.fromhex(sys.stdin.readline().strip())
    try:
        launcher = connect((host, int(port)), secret, float(timeout_s))
    except OSError as error:
        sys.exit(f"cannot connect to the launcher at {host}:{port}: {error}")
    node = HostNode(launcher, int(number), lost_after_s=float(lost_after_s))
    status = node.serve()
    node.close()
    # Immediately, without exit handlers: there is nothing to clean up.
    os._exit(1 if status is None else status)


if __name__ == "__main__":
    main()
