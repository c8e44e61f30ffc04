"""HTTP connections with limits of time and size that slow or hostile clients cannot extend."""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD = 64 << 10  # bytes of a request's first line and headers
_SEND_S = 5.0  # time for a client to receive its answer
_ARRIVE_S = 1.0  # time to receive a request that was sent before the server stopped


def limited_protocol(seconds: float, connections: int) -> type[HttpToolsProtocol]:
    """Return a protocol that limits the seconds of a request's head, of its body, and of its prediction, each.

    A new connection may be silent for as long. More than ``connections`` connections are closed at once.
    """

    class Limited(HttpToolsProtocol):
        _deadline: asyncio.TimerHandle | None = None
        _head: int | None = 0  # bytes of the head so far; None: it is complete
        _open = 0  # requests that have begun and are not answered
        _is_ending = False

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._end_after(seconds)
            if len(self.connections) > connections:
                transport.abort()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self._deadline is None and not self.transport.is_closing():
                # Line breaks before a request, or the rest of a refused one, cancel uvicorn's own time limit.
                self._end_after(seconds)
            if self._head is None:
                return
            self._head += len(data)
            if self._head > MAX_HEAD and not self.transport.is_closing():
                self.transport.write(b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n\r\n")
                self.transport.close()

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._head = 0
            self._open += 1
            self._end_after(seconds)

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
            elif self._head is None:  # the next request came along with this one
                self._end_after(2 * seconds + _SEND_S)
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

    return Limited
