"""The network interfaces of this host, and the address at which other hosts reach it."""

import fcntl
import ipaddress
import socket
import struct
from collections.abc import Sequence

from xmc_tf.launch.hosts.hosts import is_here

_SIOCGIFADDR, _SIOCGIFNETMASK = 0x8915, 0x891B  # Linux


def interfaces() -> dict[str, tuple[str, str]]:
    """Return the name and the network of the IPv4 address of each interface.

    Example:
        >>> interfaces()["127.0.0.1"]
        ('lo', '127.0.0.0/8')
    """
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                address, mask = (
                    socket.inet_ntoa(fcntl.ioctl(probe, question, request)[20:24])
                    for question in (_SIOCGIFADDR, _SIOCGIFNETMASK)
                )
            except OSError:  # the interface has no address
                continue
            found[address] = (name, str(ipaddress.ip_network(f"{address}/{mask}", strict=False)))
    return found


def interface_of(address: str) -> str | None:
    """Return the name of the interface with this address, or None."""
    return interfaces().get(address, (None, ""))[0]


def network_of(address: str) -> str | None:
    """Return the network of this address of the host, such as ``10.0.0.0/24``, or None."""
    return interfaces().get(address, ("", None))[1]


def address_towards(hosts: Sequence[str]) -> str:
    """Return this host's address on the route to the first of the other hosts; the loopback if there are none."""
    for host in hosts:
        if is_here(host):
            continue
        try:
            found = socket.getaddrinfo(host, 9, socket.AF_INET, socket.SOCK_DGRAM)
        except OSError:
            continue
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(found[0][4])  # sends nothing
            except OSError:
                continue
            return str(probe.getsockname()[0])
    return "127.0.0.1"
