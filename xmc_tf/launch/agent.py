"""The agent of a rank: starts its process on its cores, forwards its output, reports its end, and stops it.

``horovodrun`` or ``mpiexec`` starts it: ``python -m xmc_tf.launch.agent [--threads N] [--no-pin] -- command …``.

The process ends with its agent, and the agent with its launcher, even if these are killed.
"""

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO

from xmc_tf.common.process.states import die_with_parent
from xmc_tf.launch import cores, messages
from xmc_tf.launch.remote.interfaces import interface_of
from xmc_tf.launch.remote.keepalive import end_when_lost
from xmc_tf.ranks.channels.handshake import call

PATIENCE_S = 5.0  # between SIGTERM and SIGKILL
_LONGEST_LINE = 1 << 16
_JOIN_S = 30.0  # time limit to connect to the launcher


class Agent:
    """The agent of one rank.

    Args:
        launcher: the connection to the launcher.
    """

    def __init__(self, launcher: socket.socket) -> None:
        self._launcher = launcher
        self._sending = threading.Lock()
        self._stopping = threading.Event()

    def run(self, command: Sequence[str], environment: dict[str, str], local_rank: int) -> int:
        """Run the process to its end, and return its status, which is negative for a signal."""
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # so that its child processes can be ended with it
            preexec_fn=die_with_parent,
        )
        signal.signal(signal.SIGTERM, lambda *_: self._stop(process))
        self._send(
            messages.HELLO,
            local_rank=local_rank,
            host=socket.gethostname(),
            pid=process.pid,
            cores=sorted(os.sched_getaffinity(0)),
        )
        readers = [
            threading.Thread(target=self._forward, args=(stream, name), daemon=True)
            for stream, name in ((process.stdout, "out"), (process.stderr, "err"))
        ]
        for thread in [*readers, threading.Thread(target=self._wait_for_stop, args=(process,), daemon=True)]:
            thread.start()
        status = process.wait()
        # Child processes that are still running end too.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        for reader in readers:
            # With a timeout, because child processes in other sessions may keep the output open.
            reader.join(timeout=2)
        self._send(messages.END, status=status, stopped=self._stopping.is_set())
        if status:
            # horovodrun ends the other ranks when this agent ends; wait, so that other failures are reported first.
            self._stopping.wait(PATIENCE_S)
        return status

    def _forward(self, stream: IO[bytes], name: str) -> None:
        for line in iter(lambda: stream.readline(_LONGEST_LINE), b""):
            self._send(messages.LINE, stream=name, text=line.decode(errors="replace").rstrip("\n"))

    def _wait_for_stop(self, process: subprocess.Popen[bytes]) -> None:
        """Stop the process when the launcher says so or has ended."""
        with contextlib.suppress(OSError):
            self._launcher.recv(1)
        self._stop(process)

    def _stop(self, process: subprocess.Popen[bytes]) -> None:
        if self._stopping.is_set():
            return
        self._stopping.set()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        threading.Thread(target=self._kill_later, args=(process.pid,), daemon=True).start()

    def _kill_later(self, group: int) -> None:
        threading.Event().wait(PATIENCE_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)

    def _send(self, kind: str, **fields: object) -> None:
        # The launcher may have ended, in which case the process is being stopped.
        with self._sending, contextlib.suppress(OSError):
            self._launcher.sendall(messages.pack(kind, **fields))


def _gpus(rank: int) -> dict[str, str]:
    """Return the variable that shows the ranks of this host only the GPUs that were chosen for them."""
    chosen = os.environ.get(messages.GPUS, "").split(";")
    return {"CUDA_VISIBLE_DEVICES": chosen[rank]} if rank < len(chosen) and chosen[rank] else {}


def _network(address: str) -> dict[str, str]:
    """Return the variables that name the network interface; hosts may call it differently."""
    name = interface_of(address)
    return {"HOROVOD_GLOO_IFACE": name, "NCCL_SOCKET_IFNAME": name} if name else {}


def main() -> None:
    """Run the command of this rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--no-pin", action="store_true")
    parser.add_argument("--lost-after", type=float, metavar="S", help="several hosts: when the launcher is lost")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    rank, local_rank, local_size = messages.read_ranks()
    share = cores.take_share(local_rank, local_size, arguments.threads, pin=not arguments.no_pin)
    address, secret = messages.launcher_of(dict(os.environ))
    with call(address, secret, messages.PURPOSE, caller=rank, patience_s=_JOIN_S) as launcher:
        # Output is unbuffered, and a fatal signal prints a traceback.
        environment = {"PYTHONFAULTHANDLER": "1"} | dict(os.environ) | share | {"PYTHONUNBUFFERED": "1"}
        environment |= _gpus(rank)
        if arguments.lost_after:
            end_when_lost(launcher, arguments.lost_after)
            environment |= _network(launcher.getsockname()[0])
        status = Agent(launcher).run(arguments.command, environment, local_rank)
    sys.stdout.flush()
    # Immediately, without exit handlers: there is nothing to clean up.
    os._exit(128 - status if status < 0 else status)


if __name__ == "__main__":
    main()
