"""Requests of one text over many connections: ``xmc-tf serve``, and a plain FastAPI wrapper of the same model.

    python -m benchmarks.server_load --model MODEL --texts X.tst.txt --fastapi SITE

SITE is a folder with FastAPI: pip install --target SITE fastapi uvicorn httptools. Both servers are started once and
asked in turns; each connection sends its next request as soon as it has an answer. Prints one JSON line: requests per
second, median and 99th percentile of the milliseconds of a request, peak memory, and failed requests.
"""

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np

from xmc_tf.data import TextFile

_ROOT = Path(__file__).resolve().parents[1]
_ROUNDS = 4


class Server:
    """A server process, and the results of its requests."""

    def __init__(self, command: Sequence[str], port: int, path: str, body: Any, site: Path | None = None) -> None:
        # The same uvicorn for both.
        paths = [str(_ROOT), *([str(site)] if site else []), os.environ.get("PYTHONPATH", "")]
        self._process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)})
        self._port, self._path, self._body = port, path, body
        self._ms: list[float] = []
        self._failed, self._seconds = 0, 0.0

    def wait(self) -> None:
        """Wait until the server listens."""
        while True:
            assert self._process.poll() is None, "the server ended"
            try:
                socket.create_connection(("127.0.0.1", self._port), 1).close()
                return
            except OSError:
                time.sleep(0.1)

    def ask(self, texts: Sequence[str], connections: int, record: bool = True) -> None:
        """Send one request per text."""
        left = iter(texts)

        async def sends() -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            for text in left:
                content = json.dumps(self._body(text)).encode()
                began = time.perf_counter()
                writer.write(
                    b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
                    % (self._path.encode(), len(content), content)
                )
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
                await reader.readexactly(length)
                if record:
                    self._ms.append(1000 * (time.perf_counter() - began))
                    self._failed += not head.startswith(b"http/1.1 200")
            writer.close()

        async def all_at_once() -> None:
            await asyncio.gather(*(sends() for _ in range(connections)))

        began = time.perf_counter()
        asyncio.run(all_at_once())
        self._seconds += (time.perf_counter() - began) * record

    def result(self) -> dict[str, float]:
        """Return the figures, and end the server."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        peak = int(status.partition("VmHWM:")[2].split()[0]) / 1024
        self._process.terminate()
        self._process.wait()
        median, high = np.percentile(self._ms, [50, 99])
        return {
            "requests": len(self._ms),
            "failed": self._failed,
            "per_second": round(len(self._ms) / self._seconds, 1),
            "p50_ms": round(float(median), 2),
            "p99_ms": round(float(high), 2),
            "peak_mb": round(peak),
        }


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder of a model")
    parser.add_argument("--texts", type=Path, required=True, help="texts, one per line")
    parser.add_argument("--fastapi", type=Path, required=True, help="folder of packages with FastAPI and uvicorn")
    parser.add_argument("--requests", type=int, default=10_000, help="requests of each side (default 10,000)")
    parser.add_argument("--connections", type=int, default=32, help="connections of each side (default 32)")
    a = parser.parse_args()
    file = TextFile(a.texts)
    texts = list(islice(cycle([file[row] for row in range(min(len(file), 2000))]), a.requests))
    ports = free_port(), free_port()
    ours = [sys.executable, "-m", "xmc_tf.server", "-m", a.model, "-p", str(ports[0])]
    other = [sys.executable, str(Path(__file__).parent / "sides" / "fastapi_server.py"), a.model, str(ports[1])]
    servers = {
        "xmc_tf": Server(ours, ports[0], "/v1/models/xmc:predict", lambda text: {"inputs": [text]}, a.fastapi),
        "fastapi": Server(other, ports[1], "/predict", lambda text: [text], a.fastapi),
    }
    for server in servers.values():
        server.wait()
        server.ask(texts[:200], a.connections, record=False)
    step = -(-len(texts) // _ROUNDS)
    for at in range(0, len(texts), step):
        for server in servers.values():
            server.ask(texts[at : at + step], a.connections)
    print(json.dumps({name: server.result() for name, server in servers.items()}))


if __name__ == "__main__":
    main()
