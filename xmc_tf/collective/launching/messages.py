"""What the launcher and the ranks' agents tell one another: one JSON object a line, over TCP."""

import json
import os
from typing import Any

# In the agents' environment: where the launcher listens, and what proves that they are its own.
ADDRESS = "XMC_TF_LAUNCH_ADDRESS"
TOKEN = "XMC_TF_LAUNCH_TOKEN"

# An agent's: HELLO once, then LINE for each line of its worker, and END with the worker's status.
# The launcher's: STOP.
HELLO, LINE, END, STOP = "hello", "line", "end", "stop"


def pack(kind: str, **fields: Any) -> bytes:
    """One message."""
    return json.dumps({"kind": kind, **fields}).encode() + b"\n"


class Unpacker:
    """Messages out of bytes that come in any pieces."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """The messages that are complete with these bytes."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines]


def own_place() -> tuple[int, int, int]:
    """This process's rank, its number on the host, and how many there are on the host, as the launcher below says."""
    for rank, local_rank, local_size in (
        ("HOROVOD_RANK", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ):
        if rank in os.environ:
            return int(os.environ[rank]), int(os.environ[local_rank]), int(os.environ[local_size])
    raise RuntimeError("started by neither horovodrun nor mpiexec")
