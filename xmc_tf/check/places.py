import itertools
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from xmc_tf.common.errors import InputError
from xmc_tf.common.serialization import register
from xmc_tf.common.threads import usable_cores
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.this_host import appears, versions

PATIENCE_S = 5.0  # network file systems show new files with a delay
PACKAGES = ("xmc_tf", "numpy", "tensorflow", "horovod", "mpi4py")


@register
@dataclass(frozen=True)
class Place:
    """The place of a rank: its host and process, and the versions of its packages."""

    rank: int
    local_rank: int
    host: str
    pid: int
    cores: tuple[int, ...]
    threads: int  # OMP_NUM_THREADS, or the number of cores if that is not set
    versions: dict[str, str]


def place_of_rank(communicator: Communicator) -> Place:
    cores = tuple(sorted(usable_cores()))
    setting = os.environ.get("OMP_NUM_THREADS", "")
    threads = int(setting) if setting.isascii() and setting.isdecimal() and len(setting) < 10 else len(cores)
    return Place(
        communicator.rank, communicator.local_rank, communicator.host, os.getpid(), cores, threads, versions(PACKAGES)
    )


def as_table(places: Sequence[Place]) -> str:
    rows: list[tuple[object, ...]] = [("rank", "host", "local", "pid", "threads", "cores")]
    rows += [(one.rank, one.host, one.local_rank, one.pid, one.threads, ranges(one.cores)) for one in places]
    lines = ["{:>4}  {:<24} {:>5} {:>8} {:>7}  {}".format(*row) for row in rows]
    versions_of_0 = ", ".join(f"{name} {version}" for name, version in places[0].versions.items())
    return "\n".join([*lines, f"versions: {versions_of_0}"])


def warnings(places: Sequence[Place]) -> list[str]:
    found = []
    for name, version in places[0].versions.items():
        others = [place for place in places if place.versions.get(name) != version]
        if others:
            found.append(
                f"{name} is {version} on rank 0 and {others[0].versions.get(name, 'none')} on rank {others[0].rank}: "
                "install the same version on all hosts"
            )
    for host, group in itertools.groupby(sorted(places, key=lambda place: place.host), key=lambda place: place.host):
        here = list(group)
        cores = {core for place in here for core in place.cores}
        threads = sum(place.threads for place in here)
        if len(here) > 1 and threads > len(cores):
            found.append(
                f"{host}: {len(here)} ranks want {threads} threads on {len(cores)} cores: start fewer ranks, set "
                "OMP_NUM_THREADS, or let xmc_tf.launch divide the cores"
            )
    return found


def ranges(numbers: Sequence[int]) -> str:
    """Format numbers as ranges, such as ``0-3,8``."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def ranks_without(world: Communicator, folder: Path) -> list[int]:
    """Return the ranks that cannot see rank 0's file in ``folder`` or cannot write there. All ranks must call this."""
    token, problem = world.broadcast(secrets.token_hex(16)), ""
    mark = folder / f".xmc_tf-check-{token}"
    if world.rank == 0:
        try:
            mark.write_text(token)
        except OSError as error:
            problem = f"{error.strerror}: {folder}"
    if problem := world.broadcast(problem):
        raise InputError(
            "--shared-workdir: rank 0 cannot write to the shared folder", received=problem,
            fix="give a folder that all ranks can write to",
        )  # fmt: skip
    try:
        seen = world.rank == 0 or appears(mark, token, PATIENCE_S)
        if seen:
            try:
                own = mark.with_name(f"{mark.name}-{world.rank}")
                own.write_text("")
                own.unlink()
            except OSError:
                seen = False
        return [rank for rank, fine in enumerate(world.allgather(seen)) if not fine]
    finally:
        if world.rank == 0:
            mark.unlink(missing_ok=True)
