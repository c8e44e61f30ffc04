"""Clients that a server must survive: broken, endless, slow, huge and vanishing requests.

All of them at once attack a server with tight limits, while a well-behaved client compares its answers with those of
the idle server. Then the model is copied over the served one, again and again
(``tests/server/test_hostile_clients.py``).
"""

import contextlib
import json
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

from tests.campaigns.hostile_requests import GET, PREDICT, REQUESTS, post
from tests.server.running import Running

# Limits of the server: what a slow client may take, and what a large one.
SECONDS, CONNECTIONS, LARGEST = 2, 80, 4 << 20
LIMITS = ("--timeout", str(SECONDS), "--max-connections", str(CONNECTIONS), "--max-mb", "4", "--max-waiting", "500")
_WAIT_S = 60.0  # longer than any limit of the server


def send(server: Running, content: bytes) -> tuple[int, ...]:
    """Send bytes, and return the statuses of all answers until the server closes the connection."""
    answer = b""
    with _connected(server) as one:
        sending = threading.Thread(
            target=_send_all, args=(one, content)
        )  # the server may refuse before it has read all
        sending.start()
        with contextlib.suppress(ConnectionResetError):
            while piece := one.recv(1 << 16):
                answer += piece
        sending.join()
    return tuple(int(part[4:7]) for part in answer.split(b"HTTP/")[1:])


def _send_all(one: socket.socket, content: bytes) -> None:
    with contextlib.suppress(OSError):
        one.sendall(content)


def _connected(server: Running) -> socket.socket:
    address = urlsplit(server.url)
    return socket.create_connection((str(address.hostname), int(str(address.port))), timeout=_WAIT_S)


def trickling(start: bytes, rest: bytes) -> Callable[[Running], float]:
    """Return a client that sends some bytes, then others one by one, until the server ends the connection.

    Args:
        start: what is sent at once.
        rest: what is repeated byte by byte.
    """

    def behave(server: Running) -> float:
        began = time.monotonic()
        with _connected(server) as one:
            one.sendall(start)
            one.settimeout(0.1)
            place = 0
            while time.monotonic() - began < _WAIT_S:
                try:
                    one.sendall(rest[place % len(rest) :][:1])
                    place += 1
                    if not one.recv(1 << 16):
                        break
                except TimeoutError:
                    continue
                except OSError:
                    break
        return time.monotonic() - began

    return behave


def never_reading(server: Running) -> float:
    """Ask for large answers and read none of them, until the server ends the connection."""
    began = time.monotonic()
    with _connected(server) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        request = post(json.dumps({"inputs": ["word1 word2"] * 500}).encode())
        one.settimeout(1)
        while time.monotonic() - began < _WAIT_S:
            try:
                one.sendall(request)
            except TimeoutError:
                continue
            except OSError:
                break
    return time.monotonic() - began


def resetting(server: Running) -> float:
    """Close the connection in the middle of a request, by a reset."""
    for cut in (10, 100, 150):
        with contextlib.suppress(OSError), _connected(server) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            one.sendall(post(json.dumps({"inputs": ["word1"] * 20}).encode())[:cut])
    return 0.0


SLOW: dict[str, Callable[[Running], float]] = {
    "a slow head": trickling(b"GET / HTTP/1.1\r\n", b"x-header: y\r\n"),
    "a slow body": trickling(post(b'{"inputs": ["', length=1_000_000), b"word "),
    "slow chunks": trickling(
        b"POST %s HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" % PREDICT, b"1\r\n \r\n"
    ),
    "a slow second head": trickling(GET + b"GET / HTTP/1.1\r\nx-header: ", b"y"),
    "line breaks after a request": trickling(GET, b"\r\n"),
    "a slow body that was refused": trickling(
        b"POST /healthz HTTP/1.1\r\nhost: x\r\ncontent-length: 9999999\r\n\r\n", b"x"
    ),
    "a reader who never reads": never_reading,
    "a connection that is reset": resetting,
}  # fmt: skip


class WellBehaved:
    """A client that asks while others attack, and compares its answers with those before.

    Args:
        server: the server.
        texts: the texts to ask for.
    """

    def __init__(self, server: Running, texts: list[str]) -> None:
        self._server, self._texts = server, texts
        self._expected = [self._ask(text) for text in texts]
        assert all(status == 200 for status, _ in self._expected)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.right = self.refused = self.wrong = 0

    def _ask(self, text: str) -> tuple[int, bytes]:
        status, _, body = self._server.ask(PREDICT.decode(), {"inputs": [text]})
        return status, body

    def _run(self) -> None:
        while not self._stop.is_set():
            for text, expected in zip(self._texts, self._expected, strict=True):
                try:
                    found = self._ask(text)
                except OSError:  # the server has closed the connection of a client that it has no place for
                    self.refused += 1
                    continue
                self.right += found == expected
                self.refused += found[0] in (503, 504)
                self.wrong += found != expected and found[0] not in (503, 504)

    def __enter__(self) -> "WellBehaved":
        """Start asking."""
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Stop asking."""
        self._stop.set()
        self._thread.join()


def attack(server: Running) -> list[str]:
    """Run all clients at the same time; return what was wrong."""
    faults = []
    with ThreadPoolExecutor(len(SLOW) + 8) as pool:
        slow = {name: pool.submit(behave, server) for name, behave in SLOW.items()}
        sent = {name: pool.submit(send, server, content) for name, (content, _) in REQUESTS.items()}
        for name, future in sent.items():
            statuses, allowed = future.result(), REQUESTS[name][1]
            if statuses not in allowed:
                faults.append(f"{name}: {statuses}, expected one of {allowed}")
        for name, waited in slow.items():
            if waited.result() >= _WAIT_S:
                faults.append(f"{name}: the server did not end the connection in {_WAIT_S:.0f} s")
    return faults


def flood(server: Running) -> int:
    """Open more silent connections than the server takes; return how many it has not ended in time."""
    opened = []
    for _ in range(3 * CONNECTIONS):
        with contextlib.suppress(OSError):
            opened.append(_connected(server))
    end = time.monotonic() + 20 * SECONDS
    left = len(opened)
    for one in opened:
        one.settimeout(max(0.1, end - time.monotonic()))
        with contextlib.suppress(OSError):
            if not one.recv(1):
                left -= 1
        one.close()
    return left


def stalled(server: Running, count: int = 60) -> list[int]:
    """Send nearly all of many large requests, then wait; return the statuses of their answers."""
    content = post(b" " * (LARGEST - 100), b"connection: close", length=LARGEST)
    with ThreadPoolExecutor(count) as pool:
        answers = list(pool.map(lambda _: send(server, content), range(count)))
    return [status for answer in answers for status in answer]


def peak_mb(server: Running) -> float:
    """Return the most memory that the server has used."""
    for line in Path(f"/proc/{server.process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def overwrite(model: Path, served: Path, times: int) -> None:
    """Copy a model over the served one, without removing or renaming files."""
    for _ in range(times):
        subprocess.run(["cp", "-r", *map(str, model.iterdir()), str(served)], check=True)
