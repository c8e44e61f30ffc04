import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from xmc_tf.common.process.states import die_with_parent

PATIENCE_S = 5.0  # between SIGTERM and SIGKILL
_LONGEST_LINE = 1 << 16


class Child:
    """A process in a session of its own, which ends with the thread that starts it; its output is shown line by line.

    ``show`` gets "out" or "err" and a line; ``ended``, in another thread, the status (negative for a signal) after all.
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
        self._stopping, self._gone = threading.Event(), threading.Event()
        self._show, self._ended = show, ended

        def prepare() -> None:
            die_with_parent()
            if cores is not None:
                os.sched_setaffinity(0, cores)

        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # so that its child processes can be ended with it
            preexec_fn=prepare,
        )
        self.pid = self._process.pid

    def follow(self) -> None:
        threading.Thread(target=self._wait, daemon=True).start()

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def wait_for_stop(self, seconds: float) -> None:
        """Wait until it is told to stop, even if it has ended."""
        self._stopping.wait(seconds)

    def wait(self, seconds: float) -> None:
        self._gone.wait(seconds)

    def stop(self) -> None:
        """Send SIGTERM to the process and its children, and SIGKILL later."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._signal(signal.SIGTERM)
        threading.Thread(target=self._kill_later, daemon=True).start()

    def _kill_later(self) -> None:
        if not self._gone.wait(PATIENCE_S):
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
        self._gone.set()

    def _forward(self, stream: IO[bytes], name: str) -> None:
        for line in iter(lambda: stream.readline(_LONGEST_LINE), b""):
            self._show(name, line.decode(errors="replace").rstrip("\n"))
