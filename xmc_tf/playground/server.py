"""The page's server, from the standard library, for this machine only."""

import contextlib
import io
import json
import logging
import re
import socket
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from xmc_tf.common.errors import InputError
from xmc_tf.common.files.json_files import parse_json
from xmc_tf.playground.answering import Answers
from xmc_tf.playground.page import FILES

# Enough for a text of 1 MB in any JSON encoding.
MAX_BYTES = 8 << 20
MAX_CONNECTIONS = 64  # concurrent connections; others wait in the backlog
REQUEST_S = 10.0  # time limit to receive a request and to send its answer
_LINGER_S = 5.0
_LOCAL = ("localhost", "127.0.0.1", "::1")
_LOG = logging.getLogger(__name__)
_HEADERS = {
    # No external resources, and no embedding in other pages.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class PageServer(ThreadingHTTPServer):
    """A server of the page on 127.0.0.1.

    Example:
        >>> PageServer(Answering("served"), port=8000).serve_forever()

    Args:
        answering: the model.
        port: the port; 0: any free one.
        request_s: time limit in seconds to receive a request.
    """

    daemon_threads = True
    request_queue_size = 512

    def __init__(self, answering: Answers, port: int = 0, request_s: float = REQUEST_S) -> None:
        self.answering = answering
        self.request_s = request_s
        self._places = threading.BoundedSemaphore(MAX_CONNECTIONS)
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://127.0.0.1:{self.server_address[1]}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in its own thread as soon as there is a free slot."""
        self._places.acquire()
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection and free its slot."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def shutdown_request(self, request: Any) -> None:
        """Close a connection after the client has read the answer.

        Closing it with unread input would reset it, and the client might lose the answer.
        """
        end = time.monotonic() + min(_LINGER_S, self.request_s)
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_WR)
            while (left := end - time.monotonic()) > 0:
                request.settimeout(left)
                if not request.recv(1 << 16):
                    break
        self.close_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log unexpected errors; disconnected clients are not errors."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            _LOG.exception("a request failed")


class _Incoming(io.RawIOBase):
    """The input from a client within a request's time limit, which slowly sent bytes do not extend."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection = connection
        self._end = time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request did not arrive in time")
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)


class _RejectedError(Exception):
    """A rejected request, with its status and reason."""

    def __init__(self, status: int, reason: str, **headers: str) -> None:
        super().__init__(reason)
        self.status, self.headers = status, headers


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    server_version, sys_version = "xmc_tf", ""

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(_Incoming(self.connection, self.server.request_s))

    def do_GET(self) -> None:
        """Send a file of the page, or the data about the model."""
        self._reply(self._get)

    def do_POST(self) -> None:
        """Send the labels of a text."""
        self._reply(self._post)

    def do_HEAD(self) -> None:
        """Send the same as for GET, without the content."""
        self._reply(self._get)

    def _get(self) -> None:
        path = self.path.partition("?")[0]
        if path in FILES:
            kind, content = FILES[path]
            self._send(200, kind, content.encode())
        elif path == "/about":
            self._json(200, self._run_model(self.server.answering.about))
        else:
            self._wrong_method()

    def _post(self) -> None:
        if self.path != "/ask":
            self._wrong_method()
        # Pages of other sites cannot send this type without a preflight request, which is never granted.
        if self.headers.get_content_type() != "application/json":
            raise _RejectedError(415, "a request must have the type application/json")
        body = self.rfile.read(length := self._length())
        if len(body) < length:
            raise _RejectedError(400, f"the request ends after {len(body):,} of {length:,} bytes")
        try:
            question = parse_json(body, of="the question", limit=MAX_BYTES)
        except InputError as error:
            raise _RejectedError(400, str(error)) from None
        text, k = question.get("text"), question.get("k")
        if not isinstance(text, str) or not (k is None or type(k) is int):
            raise _RejectedError(400, 'a request has the form {"text": "…", "k": 5}; k may be left out')
        self._json(200, self._run_model(lambda: self.server.answering.ask(text, k)))

    def _wrong_method(self) -> None:
        path = self.path.partition("?")[0]
        known = {"/ask": "POST", "/about": "GET, HEAD", **dict.fromkeys(FILES, "GET, HEAD")}
        if path not in known:
            raise _RejectedError(404, f"there is no {path[:200]} here")
        raise _RejectedError(405, f"{path} only accepts {known[path]}", Allow=known[path])

    def _length(self) -> int:
        lengths = self.headers.get_all("Content-Length", [])
        if "Transfer-Encoding" in self.headers or not lengths:
            raise _RejectedError(411, "a request must have a Content-Length")
        if len(lengths) > 1 or not re.fullmatch("[0-9]+", lengths[0].strip(), re.ASCII):
            raise _RejectedError(400, "Content-Length is not a number of bytes")
        digits = lengths[0].strip().lstrip("0")
        if len(digits) > 12 or int(digits or "0") > MAX_BYTES:
            raise _RejectedError(413, f"the text is too long: at most {MAX_BYTES >> 20} MB")
        return int(digits or "0")

    def _check_origin(self) -> None:
        """Reject foreign host names, because another site may point its own name to this machine."""
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or _name_of(f"//{hosts[0]}") not in _LOCAL:
            raise _RejectedError(403, "this page is only available on this machine")
        origin = self.headers.get("Origin")
        if origin is not None and origin != f"http://{hosts[0]}":
            raise _RejectedError(403, "this page accepts requests only from itself")

    def _reply(self, work: Callable[[], None]) -> None:
        try:
            self._check_origin()
            work()
        except _RejectedError as refusal:
            self._json(refusal.status, {"error": str(refusal)}, **refusal.headers)
        except TimeoutError:
            self._json(408, {"error": f"the request has not arrived within {self.server.request_s:g} s"})

    def _run_model(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except InputError as error:
            raise _RejectedError(422, str(error)) from None
        except Exception as error:  # noqa: BLE001
            # The page shows any error instead of waiting forever.
            _LOG.exception("the model failed")
            raise _RejectedError(500, f"{type(error).__name__}: {error}") from None

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer errors of the standard library in the same form as all others."""
        if code == HTTPStatus.NOT_IMPLEMENTED:  # a method without do_…
            self._reply(self._wrong_method)
        else:
            self._json(code, {"error": message or explain or HTTPStatus(code).phrase})

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing, because the page shows everything."""

    def _json(self, status: int, content: Any, **headers: str) -> None:
        # Lone surrogates, which JSON can contain and UTF-8 cannot, become question marks.
        body = json.dumps(content, ensure_ascii=False).encode("utf-8", errors="replace")
        self._send(status, "application/json", body, **headers)

    def _send(self, status: int, kind: str, content: bytes, **headers: str) -> None:
        self.close_connection = True
        self.connection.settimeout(self.server.request_s)
        self.send_response(status)
        all_headers = {"Content-Type": kind, "Content-Length": str(len(content)), "Connection": "close"}
        for name, value in {**all_headers, **_HEADERS, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _name_of(address: str) -> str | None:
    try:
        return urllib.parse.urlsplit(address).hostname
    except ValueError:
        return None
