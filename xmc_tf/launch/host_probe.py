"""The checks that a node makes on its host, step by step."""

import contextlib
import hashlib
import os
import shutil
import socket
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from xmc_tf.launch.gpus import visible_gpus
from xmc_tf.ranks.this_host import appears, versions

PACKAGES = ("xmc_tf", "tensorflow", "horovod", "transformers")
_PATIENCE_S = 3.0  # for the file in the shared folder
_PIECE, _PIECES = 64 << 10, 16
_MOST_FILES = 1000
_listening: list[socket.socket] = []  # for other nodes, until this process ends
UNREADABLE = "cannot be read"  # begins what replaces the checksum of such a file


def look(folder: str, paths: Sequence[str], shared: str, mark: str, token: str, address: str) -> dict[str, Any]:
    """Return this host's versions, checksums, disk space and GPUs. Change to the run's folder and listen for nodes."""
    os.chdir(folder)
    for server in _listening:
        server.close()
    _listening[:] = [socket.create_server((address, 0), backlog=1024)]  # the kernel answers
    return {
        "versions": versions(PACKAGES),
        "checksums": {path: quick_checksum(path) for path in paths},
        "shared": appears(Path(shared, mark), token, _PATIENCE_S),
        "disk": {one: shutil.disk_usage(one).free for one in (shared, tempfile.gettempdir()) if os.path.isdir(one)},
        "gpus": [[gpu.name, gpu.memory, gpu.utilisation] for gpu in visible_gpus(os.environ)],
        "address": address,
        "port": _listening[0].getsockname()[1],
    }


def connect(targets: list[list[Any]], patience_s: float) -> dict[str, Any]:
    """Connect to the nodes of all hosts at the same time, and return the names of the hosts that are not reached."""

    def is_reached(host: list[Any]) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((host[1], host[2]), timeout=patience_s):
            return True
        return False

    with ThreadPoolExecutor(len(targets)) as pool:
        reached = pool.map(is_reached, targets)
        return {"unreachable": [host[0] for host, found in zip(targets, reached, strict=True) if not found]}


def quick_checksum(path: str) -> str | None:
    """Return a checksum of samples of a file or folder, None if it is missing, or the reason why it is unreadable."""
    root = Path(path)
    total = hashlib.blake2b(digest_size=8)
    if not root.exists():
        return None
    try:
        files = [root] if root.is_file() else sorted(file for file in root.rglob("*") if file.is_file())[:_MOST_FILES]
        for file in files:
            if file != root:
                total.update(str(file.relative_to(root)).encode(errors="surrogateescape") + b"\0")
            size = file.stat().st_size
            total.update(size.to_bytes(8, "little"))
            last = (
                max(size - _PIECE, 0) if size > _PIECE * _PIECES else _PIECE * (_PIECES - 1)
            )  # a small file is read whole
            with file.open("rb") as stream:
                for number in range(_PIECES):
                    stream.seek(number * last // (_PIECES - 1))
                    total.update(stream.read(_PIECE))
    except OSError as error:
        return f"{UNREADABLE}: {error.strerror}"
    return total.hexdigest()
