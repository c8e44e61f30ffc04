import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Iterable
from typing import Any

from xmc_tf.ranks.channels import handshake

log = logging.getLogger(__name__)

MOST_HANDSHAKES = 128  # open at the same time; each takes a file descriptor and a thread
_BACKLOG = 1024
_REST_S = 0.1  # when this process has no file descriptors left


class Listener:
    """A listener that accepts connections only from callers that know the secret. Invalid input does no harm.

    No caller can block another: each handshake has its own thread and a deadline, and the oldest one is dropped when
    too many are open. ``welcome`` is called in a separate thread with each authenticated connection (in blocking mode),
    the caller's number, and the number that it called. It must close connections that it refuses.
    """

    def __init__(
        self,
        addresses: Iterable[str],
        secret: bytes,
        purpose: str,
        welcome: Callable[[socket.socket, int, int], None],
        *,
        port: int = 0,
    ) -> None:
        self._secret, self._purpose, self._welcome = secret, purpose, welcome
        self._servers = {
            address: socket.create_server(
                (address, port), family=socket.AF_INET6 if ":" in address else socket.AF_INET, backlog=_BACKLOG
            )
            for address in dict.fromkeys(addresses)
        }
        self.ports = {address: server.getsockname()[1] for address, server in self._servers.items()}
        self.strangers: set[str] = set()  # addresses of callers with another secret
        self._open: dict[socket.socket, None] = {}  # the oldest first
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._threads = [
            threading.Thread(target=self._accept, args=(server,), name=f"xmc_tf listener: {purpose}", daemon=True)
            for server in self._servers.values()
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop listening and drop unfinished handshakes. Connections already passed to ``welcome`` stay open."""
        self._closed.set()
        for server in self._servers.values():
            with contextlib.suppress(OSError):  # closed before
                server.shutdown(socket.SHUT_RDWR)  # wakes up the thread
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        while self._drop_oldest(0):
            pass

    def _accept(self, server: socket.socket) -> None:
        with server:
            while not self._closed.is_set():
                try:
                    connection, address = server.accept()
                except OSError as error:  # closed, or no file descriptors left
                    log.debug("%s: cannot accept: %s", self._purpose, error)
                    if not self._drop_oldest(0):
                        self._closed.wait(_REST_S)
                    continue
                self._drop_oldest(MOST_HANDSHAKES - 1)
                with self._lock:
                    self._open[connection] = None
                threading.Thread(target=self._shake, args=(connection, address), daemon=True).start()

    def _drop_oldest(self, most: int) -> bool:
        """Drop the oldest handshake if more than ``most`` are open. Return whether one was dropped."""
        with self._lock:
            if len(self._open) <= most:
                return False
            oldest = next(iter(self._open))
            del self._open[oldest]
        with contextlib.suppress(OSError):
            oldest.shutdown(socket.SHUT_RDWR)  # its thread closes it
        return True

    def _shake(self, connection: socket.socket, address: Any) -> None:
        try:
            caller, called = handshake.answer(connection, self._secret, self._purpose)
            with self._lock:
                if connection not in self._open:
                    raise ConnectionAbortedError("too many unfinished handshakes, or the listener is closing")
                del self._open[connection]
            self._welcome(connection, caller, called)
        except Exception as error:  # noqa: BLE001 - a failed connection must not end the listener
            log.debug("%s: dropped a connection from %s: %s", self._purpose, address, error)
            if isinstance(error, handshake.StrangerError):
                self.strangers.add(str(address[0]))
            with self._lock:
                self._open.pop(connection, None)
            connection.close()
