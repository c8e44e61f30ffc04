"""The ASGI application: what all routes share, such as request limits and error responses in JSON."""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol, TypeAlias

from xmc_tf.common.errors import InputError

_LOG = logging.getLogger(__name__)
_SMALL = 64 << 10  # bytes of a body that need no reservation
_MOST_LARGE = 16  # requests of the maximum size for which there is memory
_LINGER_S = 5.0  # time for a client that still sends to read why it was refused

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]


class HttpAnswer(NamedTuple):
    status: int
    body: bytes
    kind: str = "application/json"  # content type
    headers: tuple[tuple[str, str], ...] = ()


class RefusedError(Exception):
    """An error that refuses a request, with the status, message, and extra headers of the response."""

    def __init__(self, status: int, reason: str, *headers: tuple[str, str]) -> None:
        super().__init__(reason)
        self.status, self.headers = status, headers


class Limits(NamedTuple):
    max_bytes: int = 8 << 20
    seconds: float = 30.0  # to receive a request, and again to predict it
    connections: int = 1000  # more get status 503


class Request:
    """A request. Its body is received only when it is needed."""

    def __init__(self, scope: Message, receive: Receive, application: "Application") -> None:
        self.path, self.method = str(scope["path"]), str(scope["method"])
        self._headers = [(key.decode("latin-1").lower(), value.decode("latin-1")) for key, value in scope["headers"]]
        self._receive, self._limits, self._application = receive, application.limits, application
        self._held = 0
        self._waits = self.header("expect") is not None  # the client waits before it sends the body
        self._length = self.header("content-length") or "0"
        self.is_complete = not self._length.strip("0") and self.header("transfer-encoding") is None

    def all_headers(self, name: str) -> list[str]:
        return [value for key, value in self._headers if key == name]

    def header(self, name: str) -> str | None:
        return next(iter(self.all_headers(name)), None)

    @property
    def content_type(self) -> str:
        return (self.header("content-type") or "").partition(";")[0].strip().lower()

    def allow(self, *methods: str) -> None:
        if self.method not in methods:
            allowed = ", ".join(methods)
            raise RefusedError(405, f"{self.path[:200]} only accepts {allowed}", ("allow", allowed))

    async def body(self) -> bytes:
        """Receive and return the body. Refuse it if it is too long, too slow, or too large for the remaining memory."""
        # The announced length counts from the start, so that a request is refused before it has been received.
        self._hold(int(self._length) if len(self._length) <= 18 else self._limits.max_bytes + 1)
        pieces, received = list[bytes](), 0
        try:
            async with asyncio.timeout(self._limits.seconds):
                while not self.is_complete:
                    pieces.append(await self._piece())
                    received += len(pieces[-1])
                    self._hold(received)
        except TimeoutError:
            raise RefusedError(408, f"the request did not arrive within {self._limits.seconds:g} s") from None
        return b"".join(pieces)

    async def discard(self) -> None:
        """Receive the rest of the body for a few seconds, so that a client that is still sending reads the response."""
        if self._waits:
            return
        try:
            async with asyncio.timeout(min(_LINGER_S, self._limits.seconds)):
                while not self.is_complete:
                    await self._piece()
        except (TimeoutError, RefusedError):
            return

    def release(self) -> None:
        self._application.held -= self._held
        self._held = 0

    async def _piece(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise RefusedError(400, "the request is not complete")
        self._waits = False
        self.is_complete = not message.get("more_body", False)
        return bytes(message.get("body", b""))

    def _hold(self, size: int) -> None:
        """Reserve memory for a large request. Refuse it if it is too long, or if too much memory is reserved."""
        most = self._limits.max_bytes
        if size > most:
            raise RefusedError(413, f"the request is too long: at most {most:,} bytes")
        more = size - _SMALL - self._held
        if more <= 0:
            return
        if self._application.held + more > _MOST_LARGE * most:
            raise RefusedError(503, "too many large requests; retry later", ("retry-after", "1"))
        self._application.held += more
        self._held += more


class Routes(Protocol):
    @property
    def headers(self) -> Mapping[str, str]:
        """The HTTP headers of every response."""

    async def answer(self, request: Request) -> HttpAnswer:
        """Return the response to a request, or raise RefusedError or InputError."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """Return a context that is active while the server runs."""

    def answered(self, status: int, seconds: float) -> None:
        """Record the status and duration of a response in the metrics."""


class Application:
    def __init__(self, routes: Routes, limits: Limits) -> None:
        self.routes, self.limits = routes, limits
        self.is_crowded: Callable[[], bool] = lambda: False  # more connections than allowed; set by the server
        self.held = 0  # bytes of large requests

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await receive()
            async with self.routes.running():
                await send({"type": "lifespan.startup.complete"})
                await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        began = time.perf_counter()
        request = Request(scope, receive, self)
        try:
            answer = await self._answer(request)
        finally:
            request.release()
        self.routes.answered(answer.status, time.perf_counter() - began)
        await self._send(send, answer, request)

    async def _answer(self, request: Request) -> HttpAnswer:
        try:
            if self.is_crowded():
                raise RefusedError(503, "too many connections; retry later", ("retry-after", "1"))
            return await self.routes.answer(request)
        except RefusedError as error:
            return as_json(error.status, {"error": str(error)}, *error.headers)
        except InputError as error:
            return as_json(400, {"error": str(error)})
        except Exception:  # noqa: BLE001 - the client gets an answer, and the log the reason
            _LOG.exception("a request failed")
            return as_json(500, {"error": "the server failed; its log has the reason"})

    async def _send(self, send: Send, answer: HttpAnswer, request: Request) -> None:
        headers = {
            "content-type": answer.kind, "content-length": str(len(answer.body)), **self.routes.headers,
            **dict(answer.headers),
        }  # fmt: skip
        if not request.is_complete:
            headers["connection"] = "close"
        encoded = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": encoded})
        body = b"" if request.method == "HEAD" else answer.body
        if not request.is_complete:
            await send({"type": "http.response.body", "body": body, "more_body": True})
            await request.discard()
            body = b""
        await send({"type": "http.response.body", "body": body})


def as_json(status: int, content: Any, *headers: tuple[str, str]) -> HttpAnswer:
    """Return a JSON response. Lone surrogates, which JSON allows but UTF-8 does not, become question marks."""
    body = json.dumps(content, ensure_ascii=False).encode("utf-8", errors="replace")
    return HttpAnswer(status, body, headers=headers)
