"""A listener that authenticates its callers in its own thread and tolerates any input.

No caller can block it: sockets do not block, a handshake has one deadline for all its bytes, and when too many
handshakes are open the oldest one is dropped. A caller that knows the secret needs one round trip, so it gets through a
flood of connections that stay silent.
"""

import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from xmc_tf.ranks.channels import handshake

log = logging.getLogger(__name__)

MOST_HANDSHAKES = 128  # open at the same time; each takes a file descriptor
_BACKLOG = 1024
_ACCEPT_AT_ONCE = 64
_REST_S = 0.1  # when this process has no file descriptors left

Welcome = Callable[[socket.socket, int, int], None]


class _Handshake:
    """The state of one connection that is not authenticated yet."""

    def __init__(self, connection: socket.socket, address: Any) -> None:
        self.connection, self.address = connection, address
        self.nonce, self.received = handshake.new_nonce(), b""
        self.end = time.monotonic() + handshake.HANDSHAKE_S


class Listener:
    """A listener that hands over the connections whose caller knows the secret.

    Example:
        >>> listener = Listener(["127.0.0.1"], secret, "stalls", lambda connection, caller, called: ...)
        >>> handshake.call(("127.0.0.1", listener.ports["127.0.0.1"]), secret, "stalls", caller=3)

    Args:
        addresses: the addresses of this host to listen on.
        secret: the run's secret.
        purpose: the purpose of the connections; callers must use the same one.
        welcome: called with each authenticated connection (in blocking mode), the caller's number and the number that
            it called. It runs in the listener's thread and must not block. It must close connections that it refuses.
        port: the port to listen on; default: any free one.
    """

    def __init__(
        self, addresses: Iterable[str], secret: bytes, purpose: str, welcome: Welcome, *, port: int = 0
    ) -> None:
        self._secret, self._purpose, self._welcome = secret, purpose, welcome
        self._servers = {address: _server(address, port) for address in dict.fromkeys(addresses)}
        self.ports = {address: server.getsockname()[1] for address, server in self._servers.items()}
        self._open: dict[socket.socket, _Handshake] = {}  # the oldest first
        self._selector = selectors.DefaultSelector()
        for server in self._servers.values():
            self._selector.register(server, selectors.EVENT_READ)
        self._wake, self._awake = socket.socketpair()
        self._selector.register(self._awake, selectors.EVENT_READ)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"xmc_tf listener: {purpose}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening and drop unfinished handshakes; connections that were handed over stay open."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._wake.close()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._closed.is_set():
                self._serve()
        finally:
            for one in [*self._open, *self._servers.values(), self._awake]:
                one.close()
            self._selector.close()

    def _serve(self) -> None:
        """Serve the sockets that are ready, and drop handshakes past their deadline."""
        first = next(iter(self._open.values()), None)
        wait_s = None if first is None else max(0.0, first.end - time.monotonic())
        for key, _ in self._selector.select(wait_s):
            connection = key.fileobj
            if connection in self._open:
                self._continue(self._open[connection])
            elif connection in self._servers.values():
                self._accept(connection)  # type: ignore[arg-type]
        now = time.monotonic()
        for one in [one for one in self._open.values() if one.end <= now]:
            self._drop(one, "the handshake took too long")

    def _accept(self, server: socket.socket) -> None:
        for _ in range(_ACCEPT_AT_ONCE):
            try:
                connection, address = server.accept()
            except (BlockingIOError, ConnectionError):
                return
            except OSError as error:  # no file descriptors left
                log.debug("%s: cannot accept: %s", self._purpose, error)
                if self._open:
                    self._drop(next(iter(self._open.values())), "file descriptors are needed")
                else:
                    self._closed.wait(_REST_S)
                return
            if len(self._open) >= MOST_HANDSHAKES:
                self._drop(next(iter(self._open.values())), "too many unfinished handshakes")
            self._begin(_Handshake(connection, address))

    def _begin(self, one: _Handshake) -> None:
        one.connection.setblocking(False)
        self._open[one.connection] = one
        self._selector.register(one.connection, selectors.EVENT_READ)
        self._send(one, handshake.greeting(one.nonce))

    def _continue(self, one: _Handshake) -> None:
        try:
            more = one.connection.recv(handshake.REPLY_BYTES - len(one.received))
        except BlockingIOError:
            return
        except OSError as error:
            self._drop(one, str(error))
            return
        one.received += more
        if not more:
            self._drop(one, "it closed the connection during the handshake")
        elif len(one.received) == handshake.REPLY_BYTES:
            self._finish(one)

    def _finish(self, one: _Handshake) -> None:
        try:
            caller, called, proof = handshake.check_reply(self._secret, self._purpose, one.nonce, one.received)
        except handshake.StrangerError as error:
            self._drop(one, str(error))
            return
        if not self._send(one, proof):
            return
        self._forget(one)
        one.connection.setblocking(True)
        try:
            self._welcome(one.connection, caller, called)
        except Exception:
            log.debug("%s: %s, caller %d: failed", self._purpose, one.address, caller, exc_info=True)
            one.connection.close()

    def _send(self, one: _Handshake, data: bytes) -> bool:
        """Send a short message, or drop the connection: the buffer of a new connection must have room for it."""
        try:
            if one.connection.send(data) == len(data):
                return True
            problem = "its buffer is full"
        except OSError as error:
            problem = str(error)
        self._drop(one, problem)
        return False

    def _forget(self, one: _Handshake) -> None:
        self._selector.unregister(one.connection)
        del self._open[one.connection]

    def _drop(self, one: _Handshake, reason: str) -> None:
        log.debug("%s: dropped a connection from %s: %s", self._purpose, one.address, reason)
        self._forget(one)
        one.connection.close()


def _server(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    server = socket.create_server((address, port), family=family, backlog=_BACKLOG)
    server.setblocking(False)
    return server
