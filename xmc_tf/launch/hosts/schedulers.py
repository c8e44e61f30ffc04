import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from xmc_tf.common.errors import InputError
from xmc_tf.launch.hosts.files import read_hostfile
from xmc_tf.launch.hosts.hosts import Hosts, make_host

_MOST_HOSTS = 100_000


def hosts_of_scheduler(environment: Mapping[str, str]) -> Hosts | None:
    """Return the hosts that Slurm or Kubernetes' MPI operator has assigned to this job, or None."""
    if "SLURM_JOB_NODELIST" in environment:
        return _slurm(environment)
    # The MPI operator mounts a hostfile into the launcher's pod, and sets Open MPI's variable.
    path = environment.get("OMPI_MCA_orte_default_hostfile", "")
    return read_hostfile(path) if path and Path(path).is_file() else None


def expand_slurm_tasks(text: str) -> list[int]:
    """Return the number of tasks per host of Slurm's compressed list, such as [4, 4, 1] for ``4(x2),1``."""
    tasks: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,6})(?:\(x(\d{1,6})\))?", part.strip())
        if match is None:
            raise InputError("SLURM_TASKS_PER_NODE", expected="numbers such as 4(x2),1", received=repr(text))
        tasks += [int(match[1])] * min(int(match[2] or 1), _MOST_HOSTS)
    return tasks


def _slurm(environment: Mapping[str, str]) -> Hosts:
    nodes = environment["SLURM_JOB_NODELIST"]
    try:
        shown = subprocess.run(["scontrol", "show", "hostnames", nodes], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise InputError(
            f"SLURM_JOB_NODELIST: scontrol does not list the hosts of {nodes}",
            received=getattr(error, "stderr", "") or str(error),
            fix="name them with -H or --hostfile",
        ) from None
    names, source = shown.stdout.split(), "Slurm (SLURM_JOB_NODELIST, SLURM_TASKS_PER_NODE)"
    tasks = expand_slurm_tasks(environment.get("SLURM_TASKS_PER_NODE", f"1(x{len(names)})"))
    if len(tasks) != len(names):
        raise InputError(
            f"{source}: lists of different lengths",
            expected=f"{len(names)} numbers of tasks, one per host",
            received=f"{len(tasks)}",
        )
    return Hosts([make_host(name, count, source) for name, count in zip(names, tasks, strict=True)], source)
