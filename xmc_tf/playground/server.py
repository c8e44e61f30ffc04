"""The page's server: of the standard library alone, for this machine alone."""

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
from xmc_tf.playground.answering import Answering
from xmc_tf.playground.page import FILES

# A text of 1 MB, as JSON may write it.
MOST_BYTES = 8 << 20
MOST_CONNECTIONS = 64  # served at a time; more wait in the backlog
REQUEST_S = 10.0  # in which a request must have arrived, and its answer been taken
_LINGER_S = 5.0
_LOCAL = ("localhost", "127.0.0.1", "::1")
_LOG = logging.getLogger(__name__)
_HEADERS = {
    # Nothing from anywhere else, and no other page may look in.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class PageServer(ThreadingHTTPServer):
    """Serves the page on this machine's own address, 127.0.0.1.

    Example:
        >>> PageServer(Answering("served"), port=8000).serve_forever()

    Args:
        answering: the model.
        port: where; 0 for any that is free.
        request_s: seconds in which a request must have arrived.
    """

    daemon_threads = True
    request_queue_size = 512

    def __init__(self, answering: Answering, port: int = 0, request_s: float = REQUEST_S) -> None:
        self.answering = answering
        self.request_s = request_s
        self._places = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://127.0.0.1:{self.server_address[1]}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own, once there is a place for it."""
        self._places.acquire()
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection and give its place back."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def shutdown_request(self, request: Any) -> None:
        """Close a connection after the client has read the answer.

        Closing it while a part of the request is unread would reset it, and the client might lose the answer.
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
        """Log what was not foreseen; clients that have gone are none of it."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            _LOG.exception("a request failed")


class _Incoming(io.RawIOBase):
    """What a client sends, until the request's time is up: a byte now and then does not prolong it."""

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


class _RefusalError(Exception):
    """A request that is answered by a status and a reason."""

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
        """The page's files, and what it shows of the model."""
        self._reply(self._get)

    def do_POST(self) -> None:
        """The labels of a text."""
        self._reply(self._post)

    def do_HEAD(self) -> None:
        """The same as GET, without the content."""
        self._reply(self._get)

    def _get(self) -> None:
        path = self.path.partition("?")[0]
        if path in FILES:
            kind, content = FILES[path]
            self._send(200, kind, content.encode())
        elif path == "/about":
            self._json(200, self._of_model(self.server.answering.about))
        else:
            self._wrong_method()

    def _post(self) -> None:
        if self.path != "/ask":
            self._wrong_method()
        # A page from elsewhere cannot send this type without asking first, and nobody here says yes.
        if self.headers.get_content_type() != "application/json":
            raise _RefusalError(415, "a request must have the type application/json")
        body = self.rfile.read(length := self._length())
        if len(body) < length:
            raise _RefusalError(400, f"the request ends after {len(body):,} of {length:,} bytes")
        try:
            question = parse_json(body, of="the question", limit=MOST_BYTES)
        except InputError as error:
            raise _RefusalError(400, str(error)) from None
        text, k = question.get("text"), question.get("k")
        if not isinstance(text, str) or not (k is None or type(k) is int):
            raise _RefusalError(400, 'a request has the form {"text": "…", "k": 5}; k may be left out')
        self._json(200, self._of_model(lambda: self.server.answering.ask(text, k)))

    def _wrong_method(self) -> None:
        path = self.path.partition("?")[0]
        known = {"/ask": "POST", "/about": "GET, HEAD", **dict.fromkeys(FILES, "GET, HEAD")}
        if path not in known:
            raise _RefusalError(404, f"there is no {path[:200]} here")
        raise _RefusalError(405, f"{path} answers to {known[path]} alone", Allow=known[path])

    def _length(self) -> int:
        given = self.headers.get_all("Content-Length", [])
        if "Transfer-Encoding" in self.headers or not given:
            raise _RefusalError(411, "a request must have a Content-Length")
        if len(given) > 1 or not re.fullmatch("[0-9]+", given[0].strip(), re.ASCII):
            raise _RefusalError(400, "Content-Length is not a number of bytes")
        digits = given[0].strip().lstrip("0")
        if len(digits) > 12 or int(digits or "0") > MOST_BYTES:
            raise _RefusalError(413, f"the text is too long: at most {MOST_BYTES >> 20} MB")
        return int(digits or "0")

    def _check_origin(self) -> None:
        """Refuse requests that came by a foreign name: another site's page, by a name that it lets point here."""
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or _name_of(f"//{hosts[0]}") not in _LOCAL:
            raise _RefusalError(403, "this page is only available on this machine")
        origin = self.headers.get("Origin")
        if origin is not None and origin != f"http://{hosts[0]}":
            raise _RefusalError(403, "this page accepts requests only from itself")

    def _reply(self, work: Callable[[], None]) -> None:
        try:
            self._check_origin()
            work()
        except _RefusalError as refusal:
            self._json(refusal.status, {"error": str(refusal)}, **refusal.headers)
        except TimeoutError:
            self._json(408, {"error": f"the request has not arrived within {self.server.request_s:g} s"})

    def _of_model(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except InputError as error:
            raise _RefusalError(422, str(error)) from None
        except Exception as error:  # noqa: BLE001
            # Whatever it was, the page is to say so instead of waiting.
            _LOG.exception("the model failed")
            raise _RefusalError(500, f"{type(error).__name__}: {error}") from None

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer what the standard library refuses, in the form of all other answers."""
        if code == HTTPStatus.NOT_IMPLEMENTED:  # any method that has no do_… here
            self._reply(self._wrong_method)
        else:
            self._json(code, {"error": message or explain or HTTPStatus(code).phrase})

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the page shows what there is to tell."""

    def _json(self, status: int, content: Any, **headers: str) -> None:
        # Lone surrogates, which JSON can carry and UTF-8 cannot, become question marks.
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
