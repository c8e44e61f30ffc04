"""Connections that end when the other host is lost: its link, its power, or its kernel."""

import socket

_PROBES = 3


def end_when_lost(connection: socket.socket, timeout_s: float) -> None:
    """Make the kernel end the connection when the other host has not answered for about ``timeout_s``.

    The kernels exchange the probes: a process that is busy or stopped is not lost.
    """
    every = max(1, int(timeout_s / (_PROBES + 1)))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, every)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, every)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
    # While sent data are not acknowledged, the kernel sends no probes, and only this limit applies.
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(timeout_s * 1000))
