"""The server's socket and uvicorn, with limits of time and size that slow or hostile clients cannot extend."""

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Iterator
from typing import Any

from xmc_tf.common.errors import InputError
from xmc_tf.common.process import signals
from xmc_tf.common.process.extras import require
from xmc_tf.server.application import Application

BACKLOG = 2048  # connections that wait to be accepted
_MAX_HEAD = 64 << 10  # bytes of a request's first line and headers
_PIECE = 8 << 10  # bytes parsed at once; the end of a body in such a piece counts as part of the next request's head
_SEND_S = 5.0  # time for a client to receive its answer
_ARRIVE_S = 1.0  # time to receive a request that was sent before the server stopped
_BATCH_S = 5.0  # for the batch in progress, beyond the time limit of the requests
_MOST_REFUSED = 2  # times the connection limit: above the limit, requests get 503; above this, connections are closed


def require_server() -> None:
    """Raise an error with the installation command if a package required by the server is missing."""
    for name in ("httptools", "prometheus_client", "uvicorn"):
        require(name)


def bound_socket(host: str, port: int) -> socket.socket:
    """Return a bound socket that does not listen yet, so that port errors are raised before a model is loaded."""
    out = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    out.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        out.bind((host, port))
    except (OSError, OverflowError) as error:
        out.close()
        raise InputError(
            f"port {port} of {host} cannot be used: {error}", fix="choose another port; --port 0 takes any free one"
        ) from None
    return out


def address_of(bound: socket.socket) -> str:
    """Return the URL of a socket."""
    host, port = bound.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def serve(application: Application, bound: socket.socket) -> None:
    """Run the server until Ctrl-C or SIGTERM, and then answer the requests that have already arrived."""
    server = _server(application)
    signals.allow_slow_end(server.config.timeout_graceful_shutdown + _BATCH_S)
    asyncio.run(server.serve([bound]))


@contextlib.contextmanager
def in_background(application: Application, bound: socket.socket) -> Iterator[str]:
    """Run the server in a thread while the block runs, and yield its URL."""
    server = _server(application)
    bound.listen(BACKLOG)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([bound])), daemon=True)
    thread.start()
    try:
        yield address_of(bound)
    finally:
        server.should_exit = True
        thread.join()


def _server(application: Application) -> Any:
    import uvicorn

    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # warnings are about clients, and would fill the log
    limits = application.limits
    seconds = int(limits.seconds) + 1
    config = uvicorn.Config(
        application, http=_limited_protocol(limits.seconds, _MOST_REFUSED * limits.connections), ws="none",
        lifespan="on", timeout_keep_alive=min(60, seconds), timeout_graceful_shutdown=seconds, access_log=False,
        server_header=False, log_config=None,
    )  # fmt: skip
    server = uvicorn.Server(config)
    application.is_crowded = lambda: len(server.server_state.connections) > limits.connections
    return server


class _Deadline:
    """The time at which a connection is closed, whatever its client does."""

    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    _deadline: asyncio.TimerHandle | None = None

    def timeout_keep_alive_handler(self) -> None:
        # An answer that the client does not read would keep a closing connection forever.
        self.transport.abort()

    def _end_after(self, seconds: float) -> None:
        self._stop()
        self._deadline = self.loop.call_later(seconds, self.transport.abort)

    def _stop(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _limited_protocol(seconds: float, connections: int) -> Any:
    """Return an HTTP protocol that closes connections that are too slow or too many.

    The head of a request, its body, and its prediction may take ``seconds`` each. A new connection may be silent for
    ``seconds``. If more than ``connections`` are open, new ones are closed at once.
    """
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    class Limited(_Deadline, HttpToolsProtocol):
        _head: int | None = 0  # bytes of the head so far; None: it is complete
        _open = 0  # requests that have begun and are not answered
        _is_partial = False  # the last of them has not arrived completely
        _is_ending = False
        _is_read = False  # nothing more is read from the connection

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._end_after(seconds)
            if len(self.connections) > connections:
                transport.abort()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            for start in range(0, len(data), _PIECE):
                if not self._is_read and not self.transport.is_closing():
                    self._parse(data[start : start + _PIECE])

        def eof_received(self) -> bool:
            # The client may have closed only its own side, and waits for answers.
            return self._end_after_answers()

        def send_400_response(self, msg: str) -> None:
            if not self._end_after_answers():
                super().send_400_response(msg)

        def _end_after_answers(self) -> bool:
            """If complete requests are unanswered, read nothing more, close after their answers, and return True."""
            self._is_read = self._open > self._is_partial
            return self._is_read

        def _parse(self, data: bytes) -> None:
            super().data_received(data)
            if self._deadline is None and not self.transport.is_closing():
                # Line breaks before a request, or the rest of a refused one, cancel uvicorn's own time limit.
                self._end_after(seconds)
            if self._head is None:
                return
            self._head += len(data)
            too_large = self._head > _MAX_HEAD and not self.transport.is_closing()
            if too_large and not self._end_after_answers():
                self.transport.write(b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n\r\n")
                self.transport.close()

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._head = 0
            self._open += 1
            self._is_partial = True
            if self._open == 1:  # otherwise, the time limit of the request before applies
                self._end_after(seconds)

        def on_message_complete(self) -> None:
            self._is_partial = False
            super().on_message_complete()

        def on_headers_complete(self) -> None:
            self._head = None
            self._end_after(2 * seconds + _SEND_S)  # the application answers earlier, if the client reads it
            super().on_headers_complete()
            if self._is_ending:
                self.cycle.keep_alive = False

        def on_response_complete(self) -> None:
            self._open -= 1
            if self._open <= 0:
                self._stop()
            else:  # the next request came along with this one
                self._end_after(seconds if self._head is not None else 2 * seconds + _SEND_S)
            if self._is_read and not self._end_after_answers():
                self.transport.close()
            super().on_response_complete()

        def shutdown(self) -> None:
            # uvicorn would close the connection of a request that is on its way or unread.
            self._is_ending = True
            if self.cycle is not None:
                self.cycle.keep_alive = False
            self.loop.call_later(_ARRIVE_S, self._close_if_idle)

        def _close_if_idle(self) -> None:
            if self._open <= 0:
                self.transport.close()

    return Limited
