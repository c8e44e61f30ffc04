"""The page's server: of the standard library alone, for this machine alone."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import parse_json
from xmc_tf.playground.answering import Answering
from xmc_tf.playground.page import FILES

# A text of 1 MB, as JSON may write it.
MOST_BYTES = 8 << 20
_LOCAL = ("localhost", "127.0.0.1", "[::1]")
_HEADERS = {
    # Nothing from anywhere else, and no other page may look in.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class PageServer(ThreadingHTTPServer):
    """Serves the page.

    Example:
        >>> PageServer(Answering("served"), port=8000).serve_forever()

    Args:
        answering: the model.
        port: where; 0 for any that is free.
    """

    daemon_threads = True

    def __init__(self, answering: Answering, port: int = 0) -> None:
        self.answering = answering
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://127.0.0.1:{self.server_address[1]}/"


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    server_version, sys_version = "xmc_tf", ""

    def do_GET(self) -> None:
        """The page's files, and what it shows of the model."""
        if not self._is_local():
            return
        path = self.path.partition("?")[0]
        if path in FILES:
            kind, content = FILES[path]
            self._send(200, kind, content.encode())
        elif path == "/about":
            self._answer(self.server.answering.about)
        else:
            self._json(404, {"error": f"there is no {path} here"})

    def do_POST(self) -> None:
        """The labels of a text."""
        if not self._is_local():
            return
        if self.path != "/ask":
            self._json(404, {"error": f"there is no {self.path} here"})
            return
        # A page from elsewhere cannot send this type without asking first, and nobody here says yes.
        if self.headers.get_content_type() != "application/json":
            self._json(415, {"error": "a question is sent as application/json"})
            return
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > MOST_BYTES:
            self._json(413, {"error": f"the text is too long: at most {MOST_BYTES >> 20} MB"})
            return
        try:
            text = parse_json(self.rfile.read(int(length)), of="the question").get("text")
        except InputError:
            text = None
        if not isinstance(text, str):
            self._json(400, {"error": 'a question has the form {"text": "…"}'})
            return
        self._answer(lambda: self.server.answering.ask(text))

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the page shows what there is to tell."""

    def _answer(self, work: Any) -> None:
        try:
            self._json(200, work())
        except InputError as error:
            self._json(422, {"error": str(error)})
        except Exception as error:
            # Whatever it was, the page is to say so instead of waiting.
            self._json(500, {"error": f"{type(error).__name__}: {error}"})
            raise

    def _is_local(self) -> bool:
        """Refuses requests that came here by a foreign name: another site's page, by a name that it lets point here."""
        host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
        if host in _LOCAL:
            return True
        self._json(403, {"error": "this page answers to this machine alone"})
        return False

    def _json(self, status: int, content: Any) -> None:
        self._send(status, "application/json", json.dumps(content, ensure_ascii=False).encode())

    def _send(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(content)), **_HEADERS}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)
