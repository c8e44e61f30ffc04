"""Many requests to ``xmc-tf serve`` while its model is replaced and the server ends: none may be lost.

    python -m benchmarks.server_soak

50 clients send 20,000 requests, each over a connection that stays open. Meanwhile three versions of the model are moved
into the folder at once, a fourth is copied in slowly, its header first, and the server gets SIGTERM, while another one
takes over. Prints one JSON line. A request is lost if it has no answer, though it was sent before the SIGTERM; one that
is sent later, to a server that ends, is sent to the other server. An answer is wrong unless it is that of a version.
"""

import argparse
import asyncio
import json
import shutil
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from tests.server.running import Running, running
from xmc_tf import XRLinear

_PATH = "/v1/models/xmc:predict"
_TEXTS, _LABELS, _VERSIONS, _K = 300, 200, 5, 3
_GROWTH = 0.1  # of the memory, from the last swap to the SIGTERM


class _Soak:
    """The clients, and what they have counted."""

    def __init__(self, servers: list[Running], texts: list[str], answers: list[set[str]], requests: int) -> None:
        self._servers, self._texts, self._answers = servers, texts, answers
        self._left, self.requests = iter(range(requests)), requests
        self._ended_at: float | None = None
        self.counts = {"answered": 0, "lost": 0, "wrong": 0, "sent_again": 0}
        self.ms: list[float] = []

    async def client(self) -> None:
        """Send one request after another."""
        connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        for number in self._left:
            at = number % len(self._texts)
            body = json.dumps({"inputs": [self._texts[at]]}).encode()
            head = f"POST {_PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
            for _ in range(2):
                began, sent = time.perf_counter(), False
                try:
                    connection = connection or await self._connected()
                    connection[1].write(head.encode() + body)
                    sent = True
                    answer, stays = await self._answer(connection[0])
                except (OSError, asyncio.IncompleteReadError):
                    connection = None
                    if sent and (self._ended_at is None or began < self._ended_at):
                        self.counts["lost"] += 1
                        break
                    self.counts["sent_again"] += 1
                    continue
                self.ms.append(1000 * (time.perf_counter() - began))
                self.counts["answered"] += 1
                self.counts["wrong"] += answer not in self._answers[at]
                if not stays:
                    connection[1].close()
                    connection = None
                break
            else:
                self.counts["lost"] += 1

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        address = urlsplit(self._servers[0 if self._ended_at is None else 1].url)
        return await asyncio.open_connection(address.hostname, address.port)

    @staticmethod
    async def _answer(reader: asyncio.StreamReader) -> tuple[str, bool]:
        """Return the labels of an answer, and whether the connection stays open."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
        content = json.loads(await reader.readexactly(length))
        labels = json.dumps(content["outputs"]["names"][0]) if " 200 " in head.partition("\r\n")[0] else str(content)
        return labels, "connection: close" not in head

    async def reached(self, share: float) -> None:
        """Wait until a share of the requests is answered."""
        while self.counts["answered"] + self.counts["lost"] < share * self.requests:
            await asyncio.sleep(0.01)

    def end_server(self) -> None:
        """Send the first server SIGTERM."""
        self._ended_at = time.perf_counter()
        self._servers[0].process.send_signal(signal.SIGTERM)


async def _replace(soak: _Soak, models: list[Path], versions: Path, memory: dict[str, float]) -> None:
    """Replace the model, slowly at last, and end the server, at chosen shares of the requests."""
    process = soak._servers[0].process.pid
    for number, share in ((2, 0.1), (3, 0.2), (4, 0.3)):
        await soak.reached(share)
        models[number - 1].rename(versions / str(number))
    await soak.reached(0.4)
    for source in sorted(models[4].rglob("*"), key=lambda path: (path.name != "params.json", path)):
        if source.is_file():
            place = versions / "5" / source.relative_to(models[4])
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, place)
            await asyncio.sleep(0.1)
    await soak.reached(0.55)
    memory["before_mb"] = _resident(process)
    await soak.reached(0.9)
    memory["after_mb"] = _resident(process)
    soak.end_server()


def _resident(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return round(pages * 4096 / 1e6, 1)


def _models(folder: Path) -> tuple[list[Path], list[str], list[set[str]]]:
    """Return model folders, texts, and the answers of the models to each text."""
    chance = np.random.default_rng(0)
    words = np.array([f"word{number}" for number in range(2000)])
    texts = [" ".join(chance.choice(words[9 * (one % _LABELS) :][:40], 20)) for one in range(10 * _LABELS)]
    labels = [[f"label {one % _LABELS}"] for one in range(len(texts))]
    answers: list[set[str]] = [set() for _ in range(_TEXTS)]
    folders = []
    for number in range(_VERSIONS):
        model = XRLinear.train(texts[number * 200 :], labels[number * 200 :])
        folders.append(folder / f"model-{number}")
        model.save(folders[-1])
        predicted = model.predict(texts[:_TEXTS], only_topk=_K)
        assert model.names is not None
        for row, found in enumerate(answers):
            found.add(json.dumps([model.names[label] for label in predicted[row].indices]))
    return folders, texts[:_TEXTS], answers


def main() -> None:
    """Run the soak, and print what was counted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--clients", type=int, default=50)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="xmc-tf-soak-") as name, ExitStack() as stack:
        folder = Path(name)
        models, texts, answers = _models(folder)
        versions = folder / "versions"
        versions.mkdir()
        shutil.copytree(models[0], versions / "1")
        flags = ("-k", str(_K), "--poll", "0.2")
        log = folder / "log"
        servers = [stack.enter_context(running(versions, *flags, log=log))]
        other = shutil.copytree(models[4], folder / "other")
        servers.append(stack.enter_context(running(other, *flags, log=folder / "log-2")))
        soak, memory = _Soak(servers, texts, answers, arguments.requests), dict[str, float]()

        async def everything() -> None:
            clients = [soak.client() for _ in range(arguments.clients)]
            await asyncio.gather(_replace(soak, models, versions, memory), *clients)

        began = time.perf_counter()
        asyncio.run(everything())
        seconds = time.perf_counter() - began
        status = servers[0].process.wait(60)
        served = log.read_text()
    result: dict[str, Any] = {
        "requests": arguments.requests, "clients": arguments.clients, **soak.counts, **memory,
        "versions_served": [number for number in range(2, _VERSIONS + 1) if f"serving version {number}" in served],
        "exit_status": status, "tracebacks": served.count("Traceback"), "seconds": round(seconds, 1),
        "p50_ms": round(float(np.median(soak.ms)), 2), "p99_ms": round(float(np.percentile(soak.ms, 99)), 2),
    }  # fmt: skip
    print(json.dumps(result))
    flat = memory["after_mb"] <= (1 + _GROWTH) * memory["before_mb"]
    done = soak.counts["answered"] == arguments.requests and result["versions_served"] == [2, 3, 4, 5]
    sys.exit(not (flat and done and not soak.counts["wrong"] and not result["tracebacks"]))


if __name__ == "__main__":
    main()
