"""The addresses at which other ranks reach this host. Listening only on these keeps other networks out."""

import contextlib
import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Sequence

from xmc_tf.ranks.communicator import Communicator

LOOPBACK = "127.0.0.1"
_SIOCGIFADDR, _SIOCGIFNETMASK = 0x8915, 0x891B  # Linux: the address of an interface, and its network
_ANYWHERE = "192.0.2.1"  # reserved for documentation: belongs to no host, but has a route


def addresses_by_host(world: Communicator) -> dict[str, str]:
    """Return, for each host, the address at which its ranks reach this host. All ranks must call this."""
    given = [os.environ.get("HOROVOD_HOSTNAME", ""), socket.getfqdn(), socket.gethostname()]
    names = tuple(dict.fromkeys(name for name in given if name and name != "localhost"))  # the best one first
    hosts = dict(world.allgather((world.host, names)))
    return {host: LOOPBACK if host == world.host else _address_towards([*names, host]) for host, names in hosts.items()}


def _address_towards(names: Sequence[str]) -> str:
    interface = os.environ.get("HOROVOD_GLOO_IFACE") or os.environ.get("HOROVOD_IFACE")
    for own, (one, _) in interfaces().items():
        if one == interface:
            return own
    return next(filter(None, map(address_on_route, [*names, _ANYWHERE])), LOOPBACK)


def interfaces() -> dict[str, tuple[str, str]]:
    """Return the name and network of each interface by IPv4 address: ``{"127.0.0.1": ("lo", "127.0.0.0/8")}``."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            with contextlib.suppress(OSError):  # the interface has no address
                address, mask = (
                    socket.inet_ntoa(fcntl.ioctl(probe, question, request)[20:24])
                    for question in (_SIOCGIFADDR, _SIOCGIFNETMASK)
                )
                found[address] = (name, str(ipaddress.ip_network(f"{address}/{mask}", strict=False)))
    return found


def address_on_route(name: str) -> str | None:
    """Return the local address from which packets to the host ``name`` would be sent. Nothing is sent."""
    try:
        found = socket.getaddrinfo(name, 9, type=socket.SOCK_DGRAM)
    except OSError:
        return None
    for family, kind, protocol, _, address in sorted(found, key=lambda one: one[0] != socket.AF_INET):
        with socket.socket(family, kind, protocol) as probe, contextlib.suppress(OSError):
            probe.connect(address)
            return probe.getsockname()[0]
    return None
