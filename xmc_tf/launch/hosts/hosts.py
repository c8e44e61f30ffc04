import re
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from xmc_tf.common.errors import InputError

THIS_HOST = "localhost"
MOST_SLOTS = 4096  # per host; larger numbers are typing errors
_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?")


class Host(NamedTuple):
    """A host and its number of ranks: one per GPU, or any number on CPUs."""

    name: str
    slots: int


@dataclass(frozen=True)
class Hosts:
    """The hosts of a run with unique names, in the order of the ranks; rank 0 is on the first one.

    Example:
        >>> hosts = Hosts([Host("one", 2), Host("two", 1)])
        >>> hosts.size, hosts.as_flag(), [hosts.host_of(rank).name for rank in range(3)]
        (3, 'one:2,two:1', ['one', 'one', 'two'])
    """

    all: Sequence[Host]
    source: str = field(default="the hosts", compare=False)  # for messages

    def __post_init__(self) -> None:
        object.__setattr__(self, "all", tuple(self.all))
        if not self.all:
            raise InputError(f"{self.source}: no hosts", expected="at least one host with its number of ranks")
        names = [host.name for host in self.all]
        for name in names:
            if names.count(name) > 1:
                raise InputError(
                    f"{self.source}: {name} is listed twice", fix="list it once, with the sum of its slots"
                )

    def __iter__(self) -> Iterator[Host]:
        return iter(self.all)

    def __len__(self) -> int:
        return len(self.all)

    @property
    def size(self) -> int:
        """The number of ranks."""
        return sum(host.slots for host in self.all)

    @property
    def only_here(self) -> bool:
        """Whether this host is the only one."""
        return all(is_here(host.name) for host in self.all)

    def as_flag(self) -> str:
        """Return the hosts as horovodrun's ``-H`` and mpiexec's ``--host`` take them."""
        return ",".join(f"{host.name}:{host.slots}" for host in self.all)

    def first_rank(self, host: Host) -> int:
        return sum(one.slots for one in self.all[: self.all.index(host)])

    def host_of(self, rank: int) -> Host:
        for host in self.all:
            if rank < host.slots:
                return host
            rank -= host.slots
        raise IndexError("there are fewer ranks")

    def limited(self, most: int) -> "Hosts":
        """Return the first hosts with at most this number of ranks in total."""
        kept, left = [], most
        for host in self.all:
            if left > 0:
                kept.append(host._replace(slots=min(left, host.slots)))
                left -= host.slots
        return Hosts(kept, self.source)

    def without(self, names: Sequence[str]) -> "Hosts":
        """Return the other hosts."""
        return Hosts([host for host in self.all if host.name not in names], self.source)


def make_host(name: str, slots: int, where: str) -> Host:
    """Return a host, after a check of its name and its number of ranks; an error names ``where`` they were read."""
    # IPv6 addresses contain the colon that separates name and slots for horovodrun and mpiexec.
    if len(name) > 253 or _NAME.fullmatch(name) is None:
        raise InputError(f"{where}: not a host name", expected="a name or an address", received=repr(name))
    if not 0 < slots <= MOST_SLOTS:
        raise InputError(
            f"{where}: the number of ranks of {name}",
            expected=f"1 to {MOST_SLOTS:,}",
            received=f"{slots:,}",
            fix="remove the host if it is not to be used",
        )
    return Host(name, slots)


def is_here(name: str) -> bool:
    """Return whether a name or an address is this host's."""
    if name in (THIS_HOST, socket.gethostname()):
        return True
    try:
        family, kind, _, _, address = socket.getaddrinfo(name, None, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.bind(address)  # which only an own address allows
    except OSError:
        return False
    return True
