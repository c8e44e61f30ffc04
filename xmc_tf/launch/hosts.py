"""The hosts of a run, and parsers for host lists from flags, JSON, hostfiles and schedulers."""

import json
import re
import socket
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from xmc_tf.common.errors import InputError
from xmc_tf.common.json_files import read_json

THIS_HOST = "localhost"
MOST_SLOTS = 4096  # per host; larger numbers are typing errors
_MOST_HOSTS = 100_000
_FORMATS = "host slots=4 (PECOS, DeepSpeed, Open MPI) or host:4 (Horovod)"
_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?")


class Host(NamedTuple):
    """A host and its number of ranks: one per GPU, or any number on CPUs."""

    name: str
    slots: int


@dataclass(frozen=True)
class Hosts:
    """The hosts of a run, with unique names, in rank order. Rank 0 is on the first host."""

    all: Sequence[Host]
    source: str = field(default="the hosts", compare=False)  # for messages

    def __post_init__(self) -> None:
        object.__setattr__(self, "all", tuple(self.all))
        if not self.all:
            raise InputError(f"{self.source}: no hosts", expected="at least one host with its number of ranks")
        for name, count in Counter(host.name for host in self.all).items():
            if count > 1:
                raise InputError(
                    f"{self.source}: {name} is listed twice", fix="list it once, with the sum of its slots"
                )

    def __iter__(self) -> Iterator[Host]:
        return iter(self.all)

    def __len__(self) -> int:
        return len(self.all)

    @property
    def size(self) -> int:
        return sum(host.slots for host in self.all)

    @property
    def only_here(self) -> bool:
        return all(is_here(host.name) for host in self.all)

    def as_flag(self) -> str:
        """Return the hosts in the format of horovodrun's ``-H`` and mpiexec's ``--host``."""
        return ",".join(f"{host.name}:{host.slots}" for host in self.all)

    def host_of(self, rank: int) -> Host:
        for host in self.all:
            if rank < host.slots:
                return host
            rank -= host.slots
        raise IndexError("there are fewer ranks")

    def limited(self, most: int) -> "Hosts":
        """Return the first hosts, cut to at most this number of ranks in total."""
        kept, left = [], most
        for host in self.all:
            if left > 0:
                kept.append(host._replace(slots=min(left, host.slots)))
                left -= host.slots
        return Hosts(kept, self.source)

    def without(self, names: Sequence[str]) -> "Hosts":
        return Hosts([host for host in self.all if host.name not in names], self.source)


def make_host(name: str, slots: int, where: str) -> Host:
    """Return a host after checking its name and number of ranks. ``where`` names their source in errors."""
    # IPv6 addresses contain the colon that separates name and slots for horovodrun and mpiexec.
    if len(name) > 253 or _NAME.fullmatch(name) is None:
        raise InputError(f"{where}: not a host name", expected="a name or an IPv4 address", received=repr(name))
    if not 0 < slots <= MOST_SLOTS:
        expected, fix = f"1 to {MOST_SLOTS:,}", "remove the host if it is not to be used"
        raise InputError(f"{where}: {name}: invalid number of ranks", expected=expected, received=f"{slots:,}", fix=fix)
    return Host(name, slots)


def is_here(name: str) -> bool:
    if name in (THIS_HOST, socket.gethostname()):
        return True
    try:
        family, kind, _, _, address = socket.getaddrinfo(name, None, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.bind(address)  # which only works for an address of this host
    except OSError:
        return False
    return True


def parse_flag(text: str) -> Hosts:
    """Parse the hosts of ``-H``, such as ``one:4,10.0.0.2:2``."""
    hosts = []
    for number, part in enumerate(text.split(","), 1):
        where = f"-H, host {number}"
        name, colon, slots = part.strip().rpartition(":")
        if not colon:
            raise InputError(f"{where}: no slots", expected="HOST:SLOTS, such as one:4,two:2", received=repr(part))
        hosts.append(make_host(name, _number(slots, where), where))
    return Hosts(hosts, "-H")


def read_hostfile(path: str | Path) -> Hosts:
    """Read a hostfile: one host per line, with ``slots=4`` or ``:4``. ``#`` starts a comment."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path} is not a file", expected="a file with one host per line (--hosts reads JSON)")
    lines = enumerate(path.read_text("utf-8-sig", errors="replace").splitlines(), 1)
    parts = [(line.partition("#")[0].split(), f"{path}, line {number}") for number, line in lines]
    return Hosts([_host_of(words, where) for words, where in parts if words], str(path))


def read_json_hosts(path: str | Path) -> Hosts:
    """Read the hosts from a JSON file of the form ``{"host": number of GPUs}``."""
    hosts = []
    for name, slots in read_json(path, expected='{"host": number of GPUs, ...}', unique_keys=True).items():
        if type(slots) is not int:
            raise InputError(
                f"{path}: {name}: invalid number of GPUs", expected="a whole number", received=json.dumps(slots)[:40]
            )
        hosts.append(make_host(name, slots, str(path)))
    return Hosts(hosts, str(path))


def _host_of(words: list[str], where: str) -> Host:
    name, *rest = words
    if not rest and ":" in name:
        name, _, slots = name.rpartition(":")
        return make_host(name, _number(slots, where), where)
    given = [word for word in rest if word.startswith("slots=")]
    unknown = [word for word in rest if not re.fullmatch(r"(slots|max_slots|max-slots)=.*", word)]
    if len(given) != 1 or unknown:
        raise InputError(f"{where}: {name}: no valid number of ranks", expected=_FORMATS, received=" ".join(words))
    return make_host(name, _number(given[0].removeprefix("slots="), where), where)


def _number(text: str, where: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise InputError(f"{where}: invalid number of ranks", expected="a whole number", received=repr(text))
    return int(text)


def hosts_of_scheduler(environment: Mapping[str, str]) -> Hosts | None:
    """Return the hosts that Slurm or the Kubernetes MPI Operator assigned to this job, or None if there are none."""
    if "SLURM_JOB_NODELIST" in environment:
        return _slurm(environment)
    # The MPI operator mounts a hostfile into the launcher's pod, and sets Open MPI's variable.
    path = environment.get("OMPI_MCA_orte_default_hostfile", "")
    return read_hostfile(path) if path and Path(path).is_file() else None


def expand_slurm_tasks(text: str) -> list[int]:
    """Return the number of tasks on each host from Slurm's compressed list: [4, 4, 1] for ``4(x2),1``."""
    tasks: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,6})(?:\(x(\d{1,6})\))?", part.strip())
        if match is None:
            raise InputError("SLURM_TASKS_PER_NODE is invalid", expected="numbers such as 4(x2),1", received=repr(text))
        tasks += [int(match[1])] * min(int(match[2] or 1), _MOST_HOSTS)
    return tasks


def _slurm(environment: Mapping[str, str]) -> Hosts:
    nodes = environment["SLURM_JOB_NODELIST"]
    try:
        shown = subprocess.run(["scontrol", "show", "hostnames", nodes], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        problem = f"SLURM_JOB_NODELIST: scontrol does not list the hosts of {nodes}"
        received = getattr(error, "stderr", "") or str(error)
        raise InputError(problem, received=received, fix="name the hosts with -H or --hostfile") from None
    names, source = shown.stdout.split(), "Slurm (SLURM_JOB_NODELIST, SLURM_TASKS_PER_NODE)"
    tasks = expand_slurm_tasks(environment.get("SLURM_TASKS_PER_NODE", f"1(x{len(names)})"))
    if len(tasks) != len(names):
        expected = f"{len(names)} numbers of tasks, one per host"
        raise InputError(
            f"{source}: not as many hosts as numbers of tasks",
            expected=expected,
            received=f"{len(tasks)}",
        )
    return Hosts([make_host(name, count, source) for name, count in zip(names, tasks, strict=True)], source)
