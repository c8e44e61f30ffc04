"""Broken, ambiguous, huge and odd HTTP requests, with the statuses that a server may answer."""

PREDICT = b"/v1/models/xmc:predict"
GET = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"


def post(body: bytes, *headers: bytes, length: int | None = None, version: bytes = b"1.1") -> bytes:
    """Return a request for predictions; its length may be a lie."""
    announced = len(body) if length is None else length
    lines = [b"POST %s HTTP/%s" % (PREDICT, version), b"host: x", b"content-length: %d" % announced, *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def _last(body: bytes) -> bytes:
    """Return a request after which the connection is closed."""
    return post(body, b"connection: close")


def _top_k(k: bytes) -> bytes:
    return _last(b'{"signature_name": "top_k", "inputs": {"text": ["word1"], "k": [%s]}}' % k)


def _line(line: bytes) -> bytes:
    return line + b"\r\nhost: x\r\nconnection: close\r\n\r\n"


def _smuggling(*headers: bytes) -> bytes:
    """Return a request whose end is not clear, so that a proxy might see two."""
    lines = [b"POST %s HTTP/1.1" % PREDICT, b"host: x", *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n0\r\n\r\n" + GET


_BUSY = {(408,), (503,), (504,)}  # refused because others are served
_SERVED = {(200,), *_BUSY}
# Name -> bytes, and the statuses of their answers, one after the other; a set where several are right.
REQUESTS: dict[str, tuple[bytes, set[tuple[int, ...]]]] = {
    "no JSON": (_last(b"{'inputs'"), {(400,)}),
    "deep JSON": (_last(b"[" * 1_000_000), {(400,)}),
    "deep texts": (_last(b'{"inputs": ' + b'{"text":' * 50_000), {(400,)}),
    "not UTF-8": (_last(b'{"inputs": ["\xff\xfe\x80"]}'), {(400,)}),
    "UTF-16": (_last('{"inputs": ["word1"]}'.encode("utf-16")), {(400,)}),
    "NaN": (_top_k(b"NaN"), {(400,)}),
    "infinite k": (_top_k(b"1e999"), {(400,)}),
    "k of 30 digits": (_top_k(b"9" * 30), {(400,)}),
    "k of 100,000 digits": (_top_k(b"9" * 100_000), {(400,)}),
    "negative k": (_top_k(b"-1"), {(400,)}),
    "a text of 3 MB": (_last(b'{"inputs": ["' + b"word1 " * 500_000 + b'"]}'), _SERVED),
    "a word of 3 MB": (_last(b'{"inputs": ["' + b"w" * 3_000_000 + b'"]}'), _SERVED),
    "control characters": (_last(b'{"inputs": ["\\u0000\\u001b[2J\\r\\n\\ud800"]}'), _SERVED),
    "a million texts": (_last(b'{"inputs": [' + b'"",' * 1_000_000 + b'""]}'), {(413,), *_BUSY}),
    "the numbers of a million texts": (
        _last(b'{"signature_name": "about", "instances": [' + b'"",' * 1_000_000 + b'""]}'), {(413,), *_BUSY},
    ),
    "5 MB": (_last(b" " * 5_000_000), {(413,)}),
    "HTTP/1.0": (post(b'{"inputs": ["word1"]}', version=b"1.0"), _SERVED),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {(400,)}),
    "HTTP/9.9": (_line(b"GET /healthz HTTP/9.9"), {(400,)}),
    "two at once": (GET + _line(b"GET /healthz HTTP/1.1"), {(200, 200), (200, 503), (503, 503), (503,)}),
    "an upgrade": (_line(b"GET /healthz HTTP/1.1\r\nupgrade: websocket\r\nconnection: upgrade"), _SERVED),
    "PUT": (_line(b"PUT %s HTTP/1.1" % PREDICT), {(405,), (503,)}),
    "TRACE": (_line(b"TRACE %s HTTP/1.1" % PREDICT), {(405,), (503,)}),
    "CONNECT": (_line(b"CONNECT x:443 HTTP/1.1"), {(400,), (404,), (405,), (503,), ()}),
    "an unknown method": (_line(b"BREW / HTTP/1.1"), {(400,)}),
    "a path upwards": (_line(b"GET /../../etc/passwd HTTP/1.1"), {(404,), (503,)}),
    "a coded path upwards": (_line(b"GET /v1/models/%2e%2e%2f%00%ff HTTP/1.1"), {(404,), (503,)}),
    "a path of 60 kB": (_line(b"GET /" + b"a" * 60_000 + b" HTTP/1.1"), {(404,), (414,), (431,), (503,)}),
    "a path that is not ASCII": (_line(b"GET /\xc3\xa9\xff HTTP/1.1"), {(400,), (404,), (503,)}),
    "another host's path": (_line(b"GET http://example.org/healthz HTTP/1.1"), {(200,), (404,), (503,)}),
    "two lengths": (_smuggling(b"content-length: 0", b"content-length: 44"), {(400,)}),
    "length and chunks": (_smuggling(b"content-length: 44", b"transfer-encoding: chunked"), {(400,)}),
    "chunks of two kinds": (_smuggling(b"transfer-encoding: chunked, identity"), {(400,)}),
    "chunks before a colon": (_smuggling(b"transfer-encoding : chunked"), {(400,)}),
    "a folded header": (_smuggling(b"x: y", b" transfer-encoding: chunked", b"content-length: 5"), {(400,)}),
    "a length with a sign": (_smuggling(b"content-length: +5"), {(400,)}),
    "a chunk of 2^70 bytes": (_smuggling(b"transfer-encoding: chunked").replace(b"0\r\n\r\n", b"f" * 18), {(400,)}),
}  # fmt: skip
