"""The launcher's side of a run: shows what the ranks say, notices the first that fails, and ends the others."""

import contextlib
import logging
import os
import queue
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from xmc_tf.common.process.run_records import temporary_folder
from xmc_tf.launch import messages
from xmc_tf.launch.outcome import RankState, first_failure
from xmc_tf.ranks.channels import frames
from xmc_tf.ranks.channels.handshake import new_secret
from xmc_tf.ranks.channels.listener import Listener

log = logging.getLogger(__name__)

GRACE_S = 1.0  # after the first failure, for others to fail too: one of them may have been the cause
PATIENCE_S = 10.0  # for agents to end their workers, after which the launcher below is ended, and they with it


class Watch:
    """Follows the agents of one run in one thread; only the handshakes with those who connect have their own.

    Args:
        size: number of ranks.
        address: where to listen; the agents must be able to reach it.
        show: called with rank, "out" or "err", and each line.
    """

    def __init__(self, size: int, address: str, show: Callable[[int, str, str], None]) -> None:
        self.size, self._address, self._show = size, address, show
        self.ranks: dict[int, RankState] = {}
        self.launcher_tail: deque[str] = deque(maxlen=30)
        secret = new_secret()
        self._secret_folder = temporary_folder()  # readable by this user only
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
    def environment(self) -> dict[str, str]:
        """The variables that the agents must find in theirs."""
        return {
            messages.ADDRESS: f"{self._address}:{self._listener.ports[self._address]}",
            messages.SECRET_FILE: str(self._secret_file),
        }

    def follow(self, launcher: subprocess.Popen[bytes], start_timeout: float) -> None:
        """Return when everything has ended; ``ranks`` says how.

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
            self._let_join()
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
        self._listener.close()
        while not self._joining.empty():
            self._joining.get()[0].close()
        for connection in self._open:
            connection.close()
        self._selector.close()
        self._forget_secret()

    def first_failure(self) -> RankState | None:
        """Return the rank that failed first."""
        return first_failure(self.ranks.values())

    def missing(self) -> list[int]:
        """Ranks of which nothing was heard."""
        return sorted(set(range(self.size)) - set(self.ranks))

    def _let_join(self) -> None:
        """Take over the connections that the listener has authenticated."""
        while not self._joining.empty():
            connection, rank = self._joining.get()
            if not 0 <= rank < self.size or rank in self.ranks or rank in self._agents:
                log.debug("refused a connection of rank %d of %d", rank, self.size)
                connection.close()
                continue
            self._agents[rank] = connection
            self._open.add(connection)
            self._selector.register(connection, selectors.EVENT_READ, _Agent(self, rank))

    def _forget_secret(self) -> None:
        self._secret_folder.cleanup()

    def _launcher_says(self, stream: Any) -> None:
        data = os.read(stream.fileno(), 1 << 16)
        if not data:
            self._selector.unregister(stream)
        self.launcher_tail.extend(line for line in data.decode(errors="replace").splitlines() if line.strip())

    def hear(self, rank: int, message: dict[str, Any]) -> None:
        """Take in one message of a rank's agent.

        Raises:
            FrameError: the message is not one of an agent.
        """
        kind, state = frames.text_of(message, "kind"), self.ranks.get(rank)
        if kind == messages.HELLO and state is None:
            host, pid = frames.text_of(message, "host"), frames.number_of(message, "pid")
            cores = [int(core) for core in message["cores"]]
            self.ranks[rank] = RankState(rank, host, pid, cores, last_line_at=time.monotonic())
            if len(self.ranks) == self.size:
                self._forget_secret()
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

    def lose(self, connection: socket.socket, rank: int) -> None:
        """Forget a connection that has ended: after its rank's end, or unexpectedly."""
        self._selector.unregister(connection)
        self._open.discard(connection)
        connection.close()
        del self._agents[rank]
        if rank in self.ranks and self.ranks[rank].ended_at is None:
            self.ranks[rank].ended_at = time.monotonic()


class _Agent:
    """Reads an agent's connection when there is something to read."""

    def __init__(self, watch: Watch, rank: int) -> None:
        self._watch, self._rank, self._unpacker = watch, rank, frames.Unpacker()

    def __call__(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(1 << 16)
            for message in self._unpacker.feed(data):
                self._watch.hear(self._rank, message)
        except (OSError, ValueError, KeyError, TypeError) as error:  # the connection is gone, or breaks the protocol
            log.debug("rank %d: %s", self._rank, error)
            data = b""
        if not data:
            self._watch.lose(connection, self._rank)


def _end(launcher: subprocess.Popen[bytes], late_by: float) -> None:
    """End the launcher below, and what belongs to it, when it is late, and by force when it is later."""
    if late_by > 0:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(launcher.pid, signal.SIGKILL if late_by > 5 else signal.SIGTERM)


def show_line(rank: int, stream: str, text: str) -> None:
    """Print a rank's line where it belongs, with the rank in front."""
    print(f"[{rank}] {text}", file=sys.stdout if stream == "out" else sys.stderr, flush=True)
