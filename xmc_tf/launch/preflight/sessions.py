"""The launcher's side of the probes: one session per host, all at the same time, within one time limit."""

import contextlib
import json
import queue
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from xmc_tf.launch.hosts.hosts import Host, is_here
from xmc_tf.launch.preflight.probe import MARK
from xmc_tf.launch.remote.shells import Shell, python_line

_MODULE = "xmc_tf.launch.preflight.probe"


class ProbeError(Exception):
    """A probe that did not start, did not answer in time, or failed; the message says which."""


class Session:
    """The session with the probe of one host.

    Args:
        host: the host.
        shell: the way to other hosts.
    """

    def __init__(self, host: Host, shell: Shell) -> None:
        self.host, self.end = host, 0.0  # of time.monotonic: when answers must have arrived
        here = is_here(host.name)
        command = [sys.executable, "-m", _MODULE] if here else shell.command(host.name, python_line(_MODULE))
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C reaches only the launcher
        )
        self._answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._errors: deque[str] = deque(maxlen=5)
        self._readers = [
            threading.Thread(target=self._read_answers, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def ask(self, step: str, **fields: Any) -> dict[str, Any]:
        """Send a request and return its answer.

        Raises:
            ProbeError: there is no answer in time, or the probe has ended.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # the probe has ended or was closed, which is noticed below
            self._process.stdin.write(json.dumps({"step": step, **fields}) + "\n")
            self._process.stdin.flush()
        try:
            answer = self._answers.get(timeout=max(0.01, self.end - time.monotonic()))
        except queue.Empty:
            raise ProbeError("no answer in time") from None
        if answer is None:
            self._readers[1].join(1)
            raise ProbeError(self._errors[-1] if self._errors else f"ended with status {self._process.wait()}")
        found: dict[str, Any] = json.loads(answer)
        if "error" in found:
            raise ProbeError(found["error"])
        return found

    def close(self) -> None:
        """End the probe."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for reader in self._readers:
            reader.join(1)

    def _read_answers(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            for line in stream:
                if line.startswith(MARK):
                    self._answers.put(line.removeprefix(MARK))
        self._answers.put(None)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            self._errors.extend(line.strip() for line in stream if line.strip())


class Sessions:
    """The sessions with the probes of all hosts.

    Args:
        hosts: the hosts.
        shell: the way to other hosts.
        timeout_s: the maximum seconds of all checks.
    """

    def __init__(self, hosts: Iterable[Host], shell: Shell, timeout_s: float) -> None:
        self._sessions = {host.name: Session(host, shell) for host in hosts}
        self._timeout_s = timeout_s
        self.errors: dict[str, str] = {}

    def ask_all(self, share: float, ask: Callable[[Session], dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Return the answers of all hosts that have answered so far; ``errors`` has the others.

        Args:
            share: the share of the time limit for these questions. A host that is down uses up its own time only.
            ask: asks one host.
        """
        answers: dict[str, dict[str, Any]] = {}
        for session in self._sessions.values():
            session.end = time.monotonic() + share * self._timeout_s

        def ask_one(name: str, session: Session) -> None:
            try:
                answers[name] = ask(session)
            except ProbeError as error:
                self.errors[name] = str(error)

        asked = [item for item in self._sessions.items() if item[0] not in self.errors]
        threads = [threading.Thread(target=ask_one, args=item) for item in asked]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {name: answers[name] for name in self._sessions if name in answers}

    def close(self) -> None:
        """End all probes."""
        threads = [threading.Thread(target=session.close) for session in self._sessions.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._sessions = {}
