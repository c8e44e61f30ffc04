"""Messages between the launcher and the agents: JSON objects on an authenticated connection."""

import os
from pathlib import Path
from typing import Any

from xmc_tf.ranks.channels.frames import frame

# In the agents' environment: the address of the launcher, and the file with the run's secret. The secret itself must
# not be in the environment, because horovodrun writes all variables on command lines, which other users can read.
ADDRESS = "XMC_TF_LAUNCH_ADDRESS"
SECRET_FILE = "XMC_TF_LAUNCH_SECRET_FILE"
PURPOSE = "launch"
# In the agents' environment: CUDA_VISIBLE_DEVICES of each rank, separated by semicolons. Its value differs between
# hosts, and horovodrun does not pass on the variable itself.
GPUS = "XMC_TF_LAUNCH_GPUS"

# From an agent: HELLO once, then LINE for each line of its rank's output, and END with the rank's status.
# From the launcher: STOP.
HELLO, LINE, END, STOP = "hello", "line", "end", "stop"


def pack(kind: str, **fields: Any) -> bytes:
    """Return one message as bytes."""
    return frame({"kind": kind, **fields})


def launcher_of(environment: dict[str, str]) -> tuple[tuple[str, int], bytes]:
    """Return the launcher's address and the run's secret."""
    host, _, port = environment[ADDRESS].rpartition(":")
    return (host, int(port)), Path(environment[SECRET_FILE]).read_bytes()


def read_ranks() -> tuple[int, int, int]:
    """Return this process's rank, local rank and local size, as the inner launcher has set them."""
    for rank, local_rank, local_size in (
        ("HOROVOD_RANK", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ):
        if rank in os.environ:
            return int(os.environ[rank]), int(os.environ[local_rank]), int(os.environ[local_size])
    raise RuntimeError("started by neither horovodrun nor mpiexec")
