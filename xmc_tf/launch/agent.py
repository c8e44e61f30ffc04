"""Beside every worker: starts it on its cores, passes on what it says, reports how it ended, and stops it when told.

``python -m xmc_tf.launch.agent [--threads N] [--no-pin] -- command …``, started by ``horovodrun``.

The worker never outlives its agent, nor the agent its launcher, whatever kills them.
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
from xmc_tf.ranks.channels.handshake import call

PATIENCE_S = 5.0  # between asking a worker to end and making it
_LONGEST_LINE = 1 << 16
_JOIN_S = 30.0  # to reach the launcher


class Agent:
    """One worker's keeper.

    Args:
        launcher: the connection to it.
    """

    def __init__(self, launcher: socket.socket) -> None:
        self._launcher = launcher
        self._sending = threading.Lock()
        self._stopping = threading.Event()

    def run(self, command: Sequence[str], environment: dict[str, str], local_rank: int) -> int:
        """Run the worker to its end and gives its status, below zero for a signal."""
        worker = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # so that what the worker starts can be ended with it
            preexec_fn=die_with_parent,
        )
        signal.signal(signal.SIGTERM, lambda *_: self._stop(worker))
        self._send(
            messages.HELLO,
            local_rank=local_rank,
            host=socket.gethostname(),
            pid=worker.pid,
            cores=sorted(os.sched_getaffinity(0)),
        )
        readers = [
            threading.Thread(target=self._pass_on, args=(stream, name), daemon=True)
            for stream, name in ((worker.stdout, "out"), (worker.stderr, "err"))
        ]
        for thread in [*readers, threading.Thread(target=self._obey, args=(worker,), daemon=True)]:
            thread.start()
        status = worker.wait()
        # What the worker has left behind ends with it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)
        for reader in readers:
            # Not for ever: what has a session of its own may hold the worker's output open.
            reader.join(timeout=2)
        self._send(messages.END, status=status, stopped=self._stopping.is_set())
        if status:
            # The launcher below ends the others as soon as this agent ends; ours first hears who else fails by itself.
            self._stopping.wait(PATIENCE_S)
        return status

    def _pass_on(self, stream: IO[bytes], name: str) -> None:
        for line in iter(lambda: stream.readline(_LONGEST_LINE), b""):
            self._send(messages.LINE, stream=name, text=line.decode(errors="replace").rstrip("\n"))

    def _obey(self, worker: subprocess.Popen[bytes]) -> None:
        """Wait for the word to stop; a launcher that has gone says the same."""
        with contextlib.suppress(OSError):
            self._launcher.recv(1)
        self._stop(worker)

    def _stop(self, worker: subprocess.Popen[bytes]) -> None:
        if self._stopping.is_set():
            return
        self._stopping.set()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGTERM)
        threading.Thread(target=self._make_sure, args=(worker.pid,), daemon=True).start()

    def _make_sure(self, group: int) -> None:
        threading.Event().wait(PATIENCE_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)

    def _send(self, kind: str, **fields: object) -> None:
        # The launcher may be gone; then nobody listens, and the worker is being stopped.
        with self._sending, contextlib.suppress(OSError):
            self._launcher.sendall(messages.pack(kind, **fields))


def main() -> None:
    """Run the command beside which this agent was started."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--no-pin", action="store_true")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    rank, local_rank, local_size = messages.own_place()
    share = cores.take_share(local_rank, local_size, arguments.threads, pin=not arguments.no_pin)
    address, secret = messages.launcher_of(dict(os.environ))
    with call(address, secret, messages.PURPOSE, caller=rank, patience_s=_JOIN_S) as launcher:
        # Lines at once; a fatal signal shows where in the program it struck.
        environment = {"PYTHONFAULTHANDLER": "1"} | dict(os.environ) | share | {"PYTHONUNBUFFERED": "1"}
        status = Agent(launcher).run(arguments.command, environment, local_rank)
    sys.stdout.flush()
    # At once: a worker that has failed has no time to lose, and its agent nothing to put away.
    os._exit(128 - status if status < 0 else status)


if __name__ == "__main__":
    main()
