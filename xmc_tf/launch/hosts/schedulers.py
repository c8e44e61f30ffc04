"""The hosts that a cluster's scheduler has assigned: Slurm and Kubernetes' MPI operator."""

import itertools
import re
from collections.abc import Mapping
from pathlib import Path

from xmc_tf.common.errors import InputError
from xmc_tf.launch.hosts.files import read_hostfile
from xmc_tf.launch.hosts.hosts import Hosts, make_host

_MOST_HOSTS = 100_000


def hosts_of_scheduler(environment: Mapping[str, str]) -> Hosts | None:
    """Return the hosts of this job, or None if no scheduler has started it."""
    if "SLURM_JOB_NODELIST" in environment:
        return _slurm(environment)
    # The MPI operator mounts a hostfile into the launcher's pod, and sets Open MPI's variable.
    path = environment.get("OMPI_MCA_orte_default_hostfile", "")
    return read_hostfile(path) if path and Path(path).is_file() else None


def expand_slurm_hosts(text: str) -> list[str]:
    """Return the names of Slurm's compressed list.

    Example:
        >>> expand_slurm_hosts("gpu[01-03,7],login")
        ['gpu01', 'gpu02', 'gpu03', 'gpu7', 'login']
    """
    names: list[str] = []
    for part in re.findall(r"(?:[^,\[\]]|\[[^\[\]]*\])+", text):
        pieces = [
            _numbers(piece) if piece.startswith("[") else [piece] for piece in re.findall(r"\[.*?\]|[^\[]+", part)
        ]
        for combination in itertools.product(*pieces):
            names.append("".join(combination))
            if len(names) > _MOST_HOSTS:
                raise InputError("SLURM_JOB_NODELIST: too many hosts", expected=f"at most {_MOST_HOSTS:,}")
    return names


def expand_slurm_tasks(text: str) -> list[int]:
    """Return the number of tasks per host of Slurm's compressed list.

    Example:
        >>> expand_slurm_tasks("4(x2),1")
        [4, 4, 1]
    """
    tasks: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,6})(?:\(x(\d{1,6})\))?", part.strip())
        if match is None:
            raise InputError("SLURM_TASKS_PER_NODE", expected="numbers such as 4(x2),1", received=repr(text))
        tasks += [int(match[1])] * min(int(match[2] or 1), _MOST_HOSTS)
    return tasks


def _slurm(environment: Mapping[str, str]) -> Hosts:
    names = expand_slurm_hosts(environment["SLURM_JOB_NODELIST"])
    source = "Slurm (SLURM_JOB_NODELIST, SLURM_TASKS_PER_NODE)"
    if not names:
        raise InputError("SLURM_JOB_NODELIST is empty", expected="hosts such as gpu[01-03]")
    tasks = expand_slurm_tasks(environment.get("SLURM_TASKS_PER_NODE", f"1(x{len(names)})"))
    if len(tasks) != len(names):
        raise InputError(
            f"{source}: lists of different lengths",
            expected=f"{len(names)} numbers of tasks, one per host",
            received=f"{len(tasks)}",
        )
    return Hosts([make_host(name, slots, source) for name, slots in zip(names, tasks, strict=True)], source)


def _numbers(group: str) -> list[str]:
    """Return the numbers of ``[01-03,7]`` as texts, with leading zeros kept."""
    found: list[str] = []
    for part in group.strip("[]").split(","):
        match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part)
        if match is None:
            raise InputError("SLURM_JOB_NODELIST", expected="ranges such as [01-03,7]", received=repr(group))
        first, last = match[1], match[2] or match[1]
        if int(last) - int(first) > _MOST_HOSTS:
            raise InputError("SLURM_JOB_NODELIST: too many hosts", expected=f"at most {_MOST_HOSTS:,}")
        found += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return found
