"""A node that was started by hand: it connects to the master, and runs the commands that the master sends."""

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from typing import IO, Any

from xmc_tf.common.errors import InputError
from xmc_tf.common.process.states import die_with_parent
from xmc_tf.launch.remote.keepalive import end_when_lost
from xmc_tf.launch.remote.nodes import END, HELLO, PURPOSE
from xmc_tf.launch.remote.relay import ERR, EXIT, IN, KILL, OUT, PIECE, RUN
from xmc_tf.ranks.channels.frames import Unpacker, frame, number_of, text_of
from xmc_tf.ranks.channels.handshake import StrangerError, call

_PATIENCE_S = 5.0  # between SIGTERM and SIGKILL
_RETRY_S = 0.5


class Node:
    """A node.

    Args:
        master: name and port of the master.
        secret: the secret that all nodes know.
        number: the number of this node, from 1.
        slots: the number of ranks of this node.
        timeout_s: the maximum seconds to connect, and until a lost master is noticed.
    """

    def __init__(self, master: tuple[str, int], secret: bytes, number: int, slots: int, timeout_s: float) -> None:
        self._master = _connect(master, secret, number, timeout_s)
        end_when_lost(self._master, timeout_s)
        self._sending = threading.Lock()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._send({"kind": HELLO, "slots": slots})

    def serve(self) -> int | None:
        """Run commands until the master ends; return the exit status of the run, or None if the master is lost."""
        unpacker = Unpacker()
        try:
            while data := self._master.recv(1 << 16):
                for message in unpacker.feed(data):
                    if message["kind"] == END:
                        return number_of(message, "status")
                    self._handle(message)
        except OSError:
            pass
        finally:
            self.close()
        return None

    def close(self) -> None:
        """End all processes of this node."""
        left = [process for process in self._processes.values() if process.poll() is None]
        for process in left:
            _signal(process, signal.SIGTERM)
        end = time.monotonic() + _PATIENCE_S
        for process in left:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, end - time.monotonic()))
            _signal(process, signal.SIGKILL)
        self._master.close()

    def _handle(self, message: dict[str, Any]) -> None:
        kind, number = text_of(message, "kind"), number_of(message, "command")
        if kind == RUN:
            self._run(number, text_of(message, "line"))
            return
        process = self._processes.get(number)
        if process is None or process.stdin is None:
            return
        if kind == KILL:
            _signal(process, signal.SIGTERM)
            threading.Thread(target=_kill_later, args=(process,), daemon=True).start()
        with contextlib.suppress(OSError, ValueError):  # it has ended or closed its input
            if kind == IN:
                process.stdin.write(text_of(message, "data").encode("latin-1"))
                process.stdin.flush()
            else:
                process.stdin.close()

    def _run(self, number: int, line: str) -> None:
        process = subprocess.Popen(
            ["/bin/sh", "-c", line],
            cwd=os.path.expanduser("~"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # so that its child processes can be ended with it
            preexec_fn=die_with_parent,
        )
        self._processes[number] = process
        assert process.stdout is not None
        assert process.stderr is not None
        readers = [
            threading.Thread(target=self._forward, args=(stream, kind, number), daemon=True)
            for stream, kind in ((process.stdout, OUT), (process.stderr, ERR))
        ]
        for reader in readers:
            reader.start()
        threading.Thread(target=self._report_end, args=(process, number, readers), daemon=True).start()

    def _forward(self, stream: IO[bytes], kind: str, number: int) -> None:
        with stream:
            while data := os.read(stream.fileno(), PIECE):
                self._send({"kind": kind, "command": number, "data": data.decode("latin-1")})

    def _report_end(self, process: subprocess.Popen[bytes], number: int, readers: list[threading.Thread]) -> None:
        status = process.wait()
        for reader in readers:
            reader.join(2)  # child processes may keep the output open
        self._send({"kind": EXIT, "command": number, "status": 128 - status if status < 0 else status})

    def _send(self, message: dict[str, Any]) -> None:
        with self._sending, contextlib.suppress(OSError):
            self._master.sendall(frame(message))


def _connect(master: tuple[str, int], secret: bytes, number: int, timeout_s: float) -> socket.socket:
    """Connect to the master, which may start later."""
    end, problem = time.monotonic() + timeout_s, ""
    while time.monotonic() < end:
        try:
            return call(master, secret, PURPOSE, caller=number, patience_s=min(5.0, timeout_s))
        except StrangerError as error:
            raise InputError(
                f"--secret-file: {master[0]}:{master[1]} has another secret, or is no master",
                received=str(error),
                fix="copy the same file to all nodes",
            ) from None
        except OSError as error:
            problem = str(error)
        time.sleep(_RETRY_S)
    raise InputError(
        f"--master-addr: no connection to {master[0]}:{master[1]} within {timeout_s:g} s",
        received=problem,
        fix="start node 0, and check its name, its port and its firewall",
    )


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _kill_later(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_PATIENCE_S)
    _signal(process, signal.SIGKILL)
