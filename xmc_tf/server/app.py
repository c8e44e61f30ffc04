"""The server as an ASGI application: paths, statuses and errors as of TensorFlow Serving."""

import asyncio
import contextlib
import json
import logging
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote

from xmc_tf.common.errors import InputError
from xmc_tf.server.batching import Batcher, OverloadedError
from xmc_tf.server.metrics import Metrics
from xmc_tf.server.questions import SIGNATURES, Best, Question, answer_of, numbers_of, parse_question
from xmc_tf.server.versions import ServedModel, Version

_LOG = logging.getLogger(__name__)
_METRICS_PATH = "/monitoring/prometheus/metrics"  # the path of TensorFlow Serving
_SMALL = 64 << 10  # bytes of a body that are always received
_MOST_LARGE = 32  # requests of the largest size that are held at the same time

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]


class ServerOptions(NamedTuple):
    """Options of the server.

    Attributes:
        name: name of the model in the paths.
        k: number of labels, unless the request says otherwise.
        most: maximum number of labels that a request may ask for.
        max_batch: maximum number of texts in a batch.
        max_waiting: maximum number of texts without an answer, and of texts in a request.
        max_bytes: maximum size of a request.
        seconds: time limit of a request.
        poll_s: seconds between two searches for a new version.
    """

    name: str = "xmc"
    k: int = 10
    most: int = 100
    max_batch: int = 64
    max_waiting: int = 4096
    max_bytes: int = 8 << 20
    seconds: float = 30.0
    poll_s: float = 5.0


class _Answer(NamedTuple):
    status: int
    body: bytes
    kind: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


class _RefusedError(Exception):
    """A refused request, with its status and reason."""

    def __init__(self, status: int, reason: str, *headers: tuple[str, str]) -> None:
        super().__init__(reason)
        self.status, self.headers = status, headers


class Application:
    """An ASGI application that answers with the labels of texts.

    Args:
        served: the model.
        options: names and limits.
    """

    def __init__(self, served: ServedModel, options: ServerOptions) -> None:
        self._served, self._options = served, options
        self._batcher: Batcher | None = None
        self._held = 0  # bytes of the large requests that are being received or answered
        self.metrics = Metrics(self._waiting, lambda: float(served.current.number))
        model = f"/v1/models/{re.escape(quote(options.name))}"
        self._model_path = re.compile(rf"{model}(?:/versions/([0-9]{{1,18}}))?(:predict|/metadata)?")

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve a connection's request, or start and stop with the server."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        began = time.perf_counter()
        try:
            answer = await self._answered(scope, receive)
        except asyncio.CancelledError:
            raise
        except _RefusedError as error:
            answer = _as_json(error.status, {"error": str(error)}, *error.headers)
        except InputError as error:
            answer = _as_json(400, {"error": str(error)})
        except Exception:  # noqa: BLE001 - the client gets an answer, and the log the reason
            _LOG.exception("a request failed")
            answer = _as_json(500, {"error": "the server failed; its log has the reason"})
        self.metrics.requests.labels(str(answer.status)).inc()
        self.metrics.seconds.observe(time.perf_counter() - began)
        await _send(send, answer, head_only=scope["method"] == "HEAD")

    async def _live(self, receive: Receive, send: Send) -> None:
        """Predict batches and look for new versions until the server ends."""
        await receive()
        options = self._options
        async with Batcher(options.max_batch, options.max_waiting, self.metrics.batch.observe) as self._batcher:
            refreshing = asyncio.create_task(self._refresh())
            await send({"type": "lifespan.startup.complete"})
            await receive()
            refreshing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await refreshing
        await send({"type": "lifespan.shutdown.complete"})

    async def _refresh(self) -> None:
        def report(result: str) -> None:
            self.metrics.reloads.labels(result).inc()

        while True:
            await asyncio.sleep(self._options.poll_s)
            try:
                await asyncio.to_thread(self._served.refresh, report)
            except Exception:  # noqa: BLE001 - a fault of one version must not end the search for later ones
                _LOG.exception("the search for a new version failed")

    def _waiting(self) -> float:
        return float(self._batcher.waiting) if self._batcher else 0.0

    async def _answered(self, scope: Message, receive: Receive) -> _Answer:
        path, method = scope["path"], scope["method"]
        if path == "/healthz":
            _allow(method, "GET", "HEAD")
            return _as_json(200, {"status": "ok", "version": self._served.current.number})
        if path == _METRICS_PATH:
            _allow(method, "GET", "HEAD")
            return _Answer(200, self.metrics.page(), self.metrics.content_type)
        found = self._model_path.fullmatch(path)
        if found is None:
            raise _RefusedError(
                404, f"there is nothing at {path[:200]}; predictions are at /v1/models/{self._options.name}:predict"
            )
        version = self._served.current
        if found[1] and int(found[1]) != version.number:
            raise _RefusedError(404, f"version {found[1]} is not served; version {version.number} is")
        if found[2] == ":predict":
            _allow(method, "POST")
            self._check_length(scope)
            held = bytearray()
            try:
                await self._receive(receive, held)
                return await self._predicted(version, bytes(held))
            finally:
                self._held -= max(0, len(held) - _SMALL)
        _allow(method, "GET", "HEAD")
        return _as_json(200, self._metadata(version) if found[2] else _status_of(version))

    async def _predicted(self, version: Version, body: bytes) -> _Answer:
        question = parse_question(body, self._options.max_bytes)
        if len(question.texts) > self._options.max_waiting:
            raise _RefusedError(413, f"too many texts in one request: at most {self._options.max_waiting:,}")
        if question.signature == "about":
            return _as_json(200, numbers_of(question, self._numbers(version)))
        k = self._k(question, version)
        assert self._batcher is not None
        try:
            asked = self._batcher.ask(version.predict, question.texts, k)
            best = await asyncio.wait_for(asked, self._options.seconds)
        except OverloadedError:
            raise _RefusedError(503, "too many texts are waiting; retry later", ("retry-after", "1")) from None
        except asyncio.TimeoutError:
            raise _RefusedError(504, f"no prediction within {self._options.seconds:g} s") from None
        self.metrics.texts.inc(len(best))
        if question.ks:
            best = [Best(one.labels[:k], one.scores[:k]) for one, k in zip(best, question.ks, strict=True)]
        return _as_json(200, answer_of(question, best, version.model.names, k))

    def _k(self, question: Question, version: Version) -> int:
        """Return the number of labels to predict: the largest that a text asks for."""
        numbers = self._numbers(version)
        if not question.ks:
            return numbers["k"]
        if min(question.ks) < 1:
            raise InputError("k must be at least 1", received=str(min(question.ks)))
        if max(question.ks) > numbers["most"]:
            raise InputError(f"k may be at most {numbers['most']} on this server", received=str(max(question.ks)))
        return max(question.ks)

    def _numbers(self, version: Version) -> dict[str, int]:
        nr_labels = version.model.metadata.nr_labels
        most = min(self._options.most, nr_labels)
        return {"nr_labels": nr_labels, "k": min(self._options.k, most), "most": most}

    def _check_length(self, scope: Message) -> None:
        """Refuse a body that is announced as too long."""
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if len(length) > 18 or int(length) > self._options.max_bytes:
            raise _too_long(self._options.max_bytes)

    async def _receive(self, receive: Receive, body: bytearray) -> None:
        """Append the body of a request, within the limits of size, time and memory."""
        try:
            await asyncio.wait_for(self._receive_pieces(receive, body), self._options.seconds)
        except asyncio.TimeoutError:
            raise _RefusedError(
                408, f"the request did not arrive within {self._options.seconds:g} s", ("connection", "close")
            ) from None

    async def _receive_pieces(self, receive: Receive, body: bytearray) -> None:
        most, more = self._options.max_bytes, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _RefusedError(400, "the request is not complete")
            piece = message.get("body", b"")
            if len(body) + len(piece) > most:
                raise _too_long(most)
            large = max(0, len(body) + len(piece) - _SMALL) - max(0, len(body) - _SMALL)
            if large and self._held + large > _MOST_LARGE * most:
                raise _RefusedError(
                    503, "too many large requests; retry later", ("retry-after", "1"), ("connection", "close")
                )
            self._held += large
            body += piece
            more = message.get("more_body", False)

    def _metadata(self, version: Version) -> dict[str, Any]:
        metadata = version.model.metadata
        return {
            "model_spec": {"name": self._options.name, "signature_name": "", "version": str(version.number)},
            "metadata": {
                "signatures": {name: list(inputs) for name, inputs in SIGNATURES.items()},
                "numbers": self._numbers(version),
                "model": metadata.model,
            },
        }


def _too_long(most: int) -> _RefusedError:
    return _RefusedError(413, f"the request is too long: at most {most:,} bytes", ("connection", "close"))


def _status_of(version: Version) -> dict[str, Any]:
    status = {"error_code": "OK", "error_message": ""}
    return {"model_version_status": [{"version": str(version.number), "state": "AVAILABLE", "status": status}]}


def _allow(method: str, *allowed: str) -> None:
    if method not in allowed:
        raise _RefusedError(405, f"only {' and '.join(allowed)} work here", ("allow", ", ".join(allowed)))


def _as_json(status: int, content: Any, *headers: tuple[str, str]) -> _Answer:
    return _Answer(status, json.dumps(content, ensure_ascii=False).encode(), headers=headers)


async def _send(send: Send, answer: _Answer, head_only: bool) -> None:
    headers = (("content-type", answer.kind), ("content-length", str(len(answer.body))), *answer.headers)
    await send(
        {
            "type": "http.response.start",
            "status": answer.status,
            "headers": [(name.encode(), value.encode()) for name, value in headers],
        }
    )
    await send({"type": "http.response.body", "body": b"" if head_only else answer.body})
