"""The server's socket, and uvicorn, which implements HTTP."""

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Iterator
from typing import Any

from xmc_tf.common.errors import InputError
from xmc_tf.common.process import signals
from xmc_tf.common.process.extras import pip_install
from xmc_tf.server.application import Application

BACKLOG = 2048  # connections that wait to be accepted
_BATCH_S = 5.0  # for the batch in progress, beyond the time limit of the requests
_MOST_REFUSED = 2  # times the limit of connections: above the limit they get status 503, above this they are closed


def require_server() -> None:
    """Raise an error with the installation command if a package that the server needs is missing."""
    try:
        import httptools  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise InputError(
            f"the server needs another package: {error}", fix=f"install it: {pip_install('server')}"
        ) from None


def bound_socket(host: str, port: int) -> socket.socket:
    """Return a socket that does not listen yet, so that a port in use is reported before a model is loaded."""
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
    """Serve until Ctrl-C or SIGTERM, and answer the requests that have arrived."""
    server = _server(application)
    signals.allow_slow_end(server.config.timeout_graceful_shutdown + _BATCH_S)
    asyncio.run(server.serve([bound]))


@contextlib.contextmanager
def in_background(application: Application, bound: socket.socket) -> Iterator[str]:
    """Serve in a thread while the block runs; yield the URL."""
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

    from xmc_tf.server.limited_protocol import limited_protocol

    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # warnings are about clients, and would fill the log
    limits = application.limits
    server = uvicorn.Server(
        uvicorn.Config(
            application,
            http=limited_protocol(limits.seconds, _MOST_REFUSED * limits.connections),
            ws="none",
            lifespan="on",
            timeout_keep_alive=min(60, int(limits.seconds) + 1),
            timeout_graceful_shutdown=int(limits.seconds) + 1,
            access_log=False,
            server_header=False,
            log_config=None,
        )
    )
    application.is_crowded = lambda: len(server.server_state.connections) > limits.connections
    return server
