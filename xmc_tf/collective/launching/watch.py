"""The launcher's side of a run: shows what the ranks say, notices the first that fails, and ends the others."""

import contextlib
import os
import secrets
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from xmc_tf.collective.launching import messages
from xmc_tf.collective.launching.outcome import RankState, first_failure

GRACE_S = 1.0  # after the first failure, for others to fail too: one of them may have been the cause
PATIENCE_S = 10.0  # for agents to end their workers, after which the launcher below is ended, and they with it


class Watch:
    """Listens to the agents of one run, all in one thread.

    Args:
        size: number of ranks.
        address: where to listen; the agents must be able to reach it.
        show: called with rank, "out" or "err", and each line.
    """

    def __init__(self, size: int, address: str, show: Callable[[int, str, str], None]) -> None:
        self.size, self._show = size, show
        self.ranks: dict[int, RankState] = {}
        self.launcher_tail: deque[str] = deque(maxlen=30)
        self._token = secrets.token_hex(16)
        self._server = socket.create_server((address, 0))
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._server, selectors.EVENT_READ, self._accept)
        self._agents: dict[int, socket.socket] = {}
        self._open: set[socket.socket] = set()
        self._stopped_at: float | None = None

    @property
    def environment(self) -> dict[str, str]:
        """What the agents have to find in theirs."""
        host, port = self._server.getsockname()[:2]
        return {messages.ADDRESS: f"{host}:{port}", messages.TOKEN: self._token}

    def follow(self, launcher: subprocess.Popen[bytes], start_timeout: float) -> None:
        """Returns when everything has ended; ``ranks`` says how.

        Args:
            launcher: what starts the agents; its output is kept in ``launcher_tail``.
            start_timeout: seconds for all agents to report.
        """
        assert launcher.stdout is not None
        if launcher.stdout not in self._selector.get_map():
            self._selector.register(launcher.stdout, selectors.EVENT_READ, self._launcher_says)
        begun, gone_at = time.monotonic(), None
        while gone_at is None or (self._open and time.monotonic() - gone_at < GRACE_S):
            for key, _ in self._selector.select(timeout=0.1):
                key.data(key.fileobj)
            now = time.monotonic()
            if gone_at is None and launcher.poll() is not None:
                gone_at = now
            if len(self.ranks) < self.size and now - begun > start_timeout:
                self.stop()
            if any(state.failed and now - (state.ended_at or 0) > GRACE_S for state in self.ranks.values()):
                self.stop()
            if self._stopped_at is not None and gone_at is None:
                _end(launcher, now - self._stopped_at - PATIENCE_S)

    def stop(self) -> None:
        """Tells all agents to end their workers."""
        if self._stopped_at is not None:
            return
        self._stopped_at = time.monotonic()
        for agent in self._agents.values():
            with contextlib.suppress(OSError):
                agent.sendall(messages.pack(messages.STOP))

    def close(self) -> None:
        """Lets go of all connections; an agent that is still there takes that for the word to stop."""
        for connection in [*self._open, self._server]:
            connection.close()
        self._selector.close()

    def first_failure(self) -> RankState | None:
        """The rank that failed first."""
        return first_failure(self.ranks.values())

    def missing(self) -> list[int]:
        """Ranks of which nothing was heard."""
        return sorted(set(range(self.size)) - set(self.ranks))

    def _accept(self, server: socket.socket) -> None:
        connection, _ = server.accept()
        self._open.add(connection)
        self._selector.register(connection, selectors.EVENT_READ, _Agent(self))

    def _launcher_says(self, stream: Any) -> None:
        data = os.read(stream.fileno(), 1 << 16)
        if not data:
            self._selector.unregister(stream)
        self.launcher_tail.extend(line for line in data.decode(errors="replace").splitlines() if line.strip())

    def hear(self, connection: socket.socket, rank: int | None, message: dict[str, Any]) -> int | None:
        """Takes in one message; gives the rank that it is from, None for a stranger's."""
        if message["kind"] == messages.HELLO and secrets.compare_digest(message["token"], self._token):
            rank = int(message["rank"])
            self._agents[rank] = connection
            self.ranks[rank] = RankState(
                rank, message["host"], message["pid"], message["cores"], last_line_at=time.monotonic()
            )
            if self._stopped_at is not None:
                connection.sendall(messages.pack(messages.STOP))
        elif rank is not None and message["kind"] == messages.LINE:
            state = self.ranks[rank]
            (state.output if message["stream"] == "out" else state.errors).append(message["text"])
            state.last_line_at = time.monotonic()
            self._show(rank, message["stream"], message["text"])
        elif rank is not None and message["kind"] == messages.END:
            state = self.ranks[rank]
            state.status, state.stopped, state.ended_at = message["status"], message["stopped"], time.monotonic()
        return rank

    def lose(self, connection: socket.socket, rank: int | None) -> None:
        """A connection has ended: after its worker's end, or without a word."""
        self._selector.unregister(connection)
        self._open.discard(connection)
        connection.close()
        if rank is not None:
            del self._agents[rank]
            if self.ranks[rank].ended_at is None:
                self.ranks[rank].ended_at = time.monotonic()


class _Agent:
    """What is to be done when an agent's connection has something to say."""

    def __init__(self, watch: Watch) -> None:
        self._watch, self._unpacker = watch, messages.Unpacker()
        self._rank: int | None = None

    def __call__(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(1 << 16)
            for message in self._unpacker.feed(data):
                self._rank = self._watch.hear(connection, self._rank, message)
        except (OSError, ValueError, KeyError, TypeError):  # gone, or never one of ours
            data = b""
        if not data:
            self._watch.lose(connection, self._rank)


def _end(launcher: subprocess.Popen[bytes], late_by: float) -> None:
    """Ends the launcher below, and what belongs to it, when it is late, and by force when it is later."""
    if late_by > 0:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(launcher.pid, signal.SIGKILL if late_by > 5 else signal.SIGTERM)


def show_line(rank: int, stream: str, text: str) -> None:
    """Prints a rank's line where it belongs, with the rank in front."""
    print(f"[{rank}] {text}", file=sys.stdout if stream == "out" else sys.stderr, flush=True)
