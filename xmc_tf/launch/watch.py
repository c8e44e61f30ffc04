"""The launcher's side of a run: shows the ranks' output, notices the first failure, and stops the other ranks."""

import contextlib
import logging
import os
import queue
import selectors
import signal
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from xmc_tf.common.process.run_records import TemporaryFolder
from xmc_tf.launch import messages
from xmc_tf.launch.outcome import RankState, first_failure
from xmc_tf.launch.remote.keepalive import end_when_lost
from xmc_tf.ranks.channels import frames
from xmc_tf.ranks.channels.handshake import new_secret
from xmc_tf.ranks.channels.listener import Listener

log = logging.getLogger(__name__)

GRACE_S = 1.0  # time for other failures after the first one: one of them may be the cause
PATIENCE_S = 10.0  # time for agents to end their processes; then horovodrun is ended, and the agents with it


class Watch:
    """The watch over the agents of a run. It runs in one thread; only the listener has its own.

    Args:
        size: the number of ranks.
        address: the address to listen on, which agents must be able to reach.
        show: called with rank, "out" or "err", and line, for each line of output.
        lost_after_s: the seconds without an answer after which a host is lost; None if all ranks are on this host.
        started: called once all ranks have started.
    """

    def __init__(
        self,
        size: int,
        address: str,
        show: Callable[[int, str, str], None],
        *,
        lost_after_s: float | None = None,
        started: Callable[[], object] = lambda: None,
    ) -> None:
        self.size, self._address, self._show, self._lost_after_s = size, address, show, lost_after_s
        self._started = started
        self.ranks: dict[int, RankState] = {}
        self.launcher_tail: deque[str] = deque(maxlen=30)
        secret = new_secret()
        self._secret_folder = TemporaryFolder()  # readable by this user only
        self._secret_file = Path(self._secret_folder.name, "secret")
        self._secret_file.write_bytes(secret)
        self._joining: queue.SimpleQueue[tuple[socket.socket, int]] = queue.SimpleQueue()
        self._listener = Listener(
            [address], secret, messages.PURPOSE, lambda connection, caller, _: self._joining.put((connection, caller))
        )
        self._selector = selectors.DefaultSelector()
        self._agents: dict[int, socket.socket] = {}
        self._open: set[socket.socket] = set()
        self._stopped_at: float | None = None

    @property
    def secret_file(self) -> Path:
        """The file with the run's secret; other hosts need it at the same path."""
        return self._secret_file

    @property
    def stopped(self) -> bool:
        """Whether the ranks were told to stop."""
        return self._stopped_at is not None

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables for the agents."""
        return {
            messages.ADDRESS: f"{self._address}:{self._listener.ports[self._address]}",
            messages.SECRET_FILE: str(self._secret_file),
        }

    def follow(
        self, launcher: subprocess.Popen[bytes], start_timeout: float, interrupt: threading.Event | None = None
    ) -> None:
        """Wait until all ranks have ended; ``ranks`` then has their outcomes.

        Args:
            launcher: the process that starts the agents (horovodrun); ``launcher_tail`` keeps its last lines.
            start_timeout: the maximum seconds until all agents have reported.
            interrupt: stops the ranks when it is set.
        """
        assert launcher.stdout is not None
        if launcher.stdout not in self._selector.get_map():
            self._selector.register(launcher.stdout, selectors.EVENT_READ, self._read_launcher)
        begun, gone_at = time.monotonic(), None
        while gone_at is None or (self._open and time.monotonic() - gone_at < GRACE_S):
            for key, _ in self._selector.select(timeout=0.1):
                key.data(key.fileobj)
            self._accept_agents()
            now = time.monotonic()
            if gone_at is None and launcher.poll() is not None:
                gone_at = now
            if len(self.ranks) < self.size and now - begun > start_timeout:
                self.stop()
            if any(state.failed and now - (state.ended_at or 0) > GRACE_S for state in self.ranks.values()):
                self.stop()
            if interrupt is not None and interrupt.is_set():
                self.stop()
            if self._stopped_at is not None and gone_at is None:
                _end_launcher(launcher, now - self._stopped_at - PATIENCE_S)

    def stop(self) -> None:
        """Tell all agents to stop their processes."""
        if self._stopped_at is not None:
            return
        self._stopped_at = time.monotonic()
        for agent in self._agents.values():
            with contextlib.suppress(OSError):
                agent.sendall(messages.pack(messages.STOP))

    def close(self) -> None:
        """Close all connections; an agent that still runs then stops its process."""
        self._listener.close()
        while not self._joining.empty():
            self._joining.get()[0].close()
        for connection in self._open:
            connection.close()
        self._selector.close()
        self._forget_secret()

    def first_failure(self) -> RankState | None:
        """Return the rank whose failure caused the others, or None."""
        return first_failure(self.ranks.values())

    def missing(self) -> list[int]:
        """Return the ranks that have not reported."""
        return sorted(set(range(self.size)) - set(self.ranks))

    def _accept_agents(self) -> None:
        """Accept the connections that the listener has authenticated."""
        while not self._joining.empty():
            connection, rank = self._joining.get()
            if not 0 <= rank < self.size or rank in self.ranks or rank in self._agents:
                log.debug("refused a connection of rank %d of %d", rank, self.size)
                connection.close()
                continue
            if self._lost_after_s is not None:
                end_when_lost(connection, self._lost_after_s)
            self._agents[rank] = connection
            self._open.add(connection)
            self._selector.register(connection, selectors.EVENT_READ, _Agent(self, rank))

    def _forget_secret(self) -> None:
        self._secret_folder.cleanup()

    def _read_launcher(self, stream: Any) -> None:
        data = os.read(stream.fileno(), 1 << 16)
        if not data:
            self._selector.unregister(stream)
        self.launcher_tail.extend(line for line in data.decode(errors="replace").splitlines() if line.strip())

    def handle(self, rank: int, message: dict[str, Any]) -> None:
        """Handle a message of a rank's agent.

        Raises:
            FrameError: the message is invalid.
        """
        kind, state = frames.text_of(message, "kind"), self.ranks.get(rank)
        if kind == messages.HELLO and state is None:
            host, pid = frames.text_of(message, "host"), frames.number_of(message, "pid")
            cores = [int(core) for core in message["cores"]]
            self.ranks[rank] = RankState(rank, host, pid, cores, last_line_at=time.monotonic())
            if len(self.ranks) == self.size:
                self._forget_secret()
                self._started()
            if self._stopped_at is not None:
                self._agents[rank].sendall(messages.pack(messages.STOP))
        elif kind == messages.LINE and state is not None:
            stream, text = frames.text_of(message, "stream"), frames.text_of(message, "text")
            (state.output if stream == "out" else state.errors).append(text)
            state.last_line_at = time.monotonic()
            self._show(rank, stream, text)
        elif kind == messages.END and state is not None:
            state.status, state.stopped = frames.number_of(message, "status"), bool(message["stopped"])
            state.ended_at = time.monotonic()
        else:
            raise frames.FrameError(f"unexpected message {kind!r}")

    def drop(self, connection: socket.socket, rank: int) -> None:
        """Remove a connection that has ended, after its rank's end or unexpectedly."""
        self._selector.unregister(connection)
        self._open.discard(connection)
        connection.close()
        del self._agents[rank]
        if rank in self.ranks and self.ranks[rank].ended_at is None:
            self.ranks[rank].ended_at = time.monotonic()


class _Agent:
    """A reader of an agent's connection, called when there is something to read."""

    def __init__(self, watch: Watch, rank: int) -> None:
        self._watch, self._rank, self._unpacker = watch, rank, frames.Unpacker()

    def __call__(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(1 << 16)
            for message in self._unpacker.feed(data):
                self._watch.handle(self._rank, message)
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
        ) as error:  # the connection is closed, or violates the protocol
            log.debug("rank %d: %s", self._rank, error)
            data = b""
        if not data:
            self._watch.drop(connection, self._rank)


def _end_launcher(launcher: subprocess.Popen[bytes], late_by: float) -> None:
    """End horovodrun and its children if they are late: by SIGTERM, and 5 seconds later by SIGKILL."""
    if late_by > 0:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(launcher.pid, signal.SIGKILL if late_by > 5 else signal.SIGTERM)
