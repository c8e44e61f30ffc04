"""Two sides that stay loaded and are asked in turns, so that other load on the machine affects both equally.

A side is a process that reads a line of JSON from its input and answers by one. Needs Python itself only.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any


class Side:
    """A side, from the outside: a command, and what is added to this process's environment."""

    def __init__(self, command: Sequence[str], environment: dict[str, str] | None = None) -> None:
        own = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": ""}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**own, **(environment or {})}
        )
        self.wait()

    def ask(self, **request: Any) -> Any:
        """Return its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self.wait()

    def wait(self) -> Any:
        """Return its next message; the first reports that it is ready."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("answer "):
                return json.loads(line.removeprefix("answer "))
        sys.exit(f"one side has ended with code {self._process.wait()}: {self._process.args!r}")

    def close(self) -> None:
        """End the side's process."""
        self._process.communicate()


def answer(handle: Callable[..., Any]) -> None:
    """Run a side: report that it is ready, and answer queries until its input ends."""
    print("answer null", flush=True)
    for line in sys.stdin:
        print("answer " + json.dumps(handle(**json.loads(line))), flush=True)


def stay_on_one_core() -> None:
    """Pin the process to the last core, to measure one thread instead of several that wait for each other."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def texts_of(file: str) -> list[bytes]:
    """Return the texts of a file, one per line."""
    with open(file, "rb") as opened:
        return opened.read().split(b"\n")[:-1]


def times(call: Callable[[list[Any]], Any], texts: Sequence[Any], first: int, count: int, batch: int) -> dict[str, Any]:
    """Return seconds of each of some requests, by the clock and of the process itself."""
    wall, own = [], []
    for request in range(first, first + count):
        at = request * batch % max(len(texts) - batch + 1, 1)
        part = list(texts[at : at + batch])
        by_clock, by_process = time.perf_counter(), time.process_time()
        call(part)
        own.append(time.process_time() - by_process)
        wall.append(time.perf_counter() - by_clock)
    return {"wall": wall, "cpu": own}
