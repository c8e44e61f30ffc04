"""The checks that a node makes on its host, step by step."""

import contextlib
import hashlib
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from xmc_tf.launch.gpus import visible_gpus
from xmc_tf.ranks.this_host import appears, versions

PACKAGES = ("xmc_tf", "tensorflow", "horovod", "transformers")
_GREETING = b"xmc_tf node\n"
_GREET_S = 5.0
_PATIENCE_S = 3.0  # for the file in the shared folder
_PIECE, _PIECES = 64 << 10, 16
_MOST_FILES = 1000
UNREADABLE = "cannot be read"  # begins what replaces the checksum of such a file


def look(folder: str, paths: Sequence[str], shared: str, mark: str, token: str, address: str) -> dict[str, Any]:
    """Return this host's versions, checksums, disk space and GPUs. Change to the run's folder and listen for nodes."""
    os.chdir(folder)
    return {
        "versions": versions(PACKAGES),
        "checksums": {path: quick_checksum(path) for path in paths},
        "shared": appears(Path(shared, mark), token, _PATIENCE_S),
        "disk": {one: shutil.disk_usage(one).free for one in (shared, tempfile.gettempdir()) if os.path.isdir(one)},
        "gpus": [[gpu.name, gpu.memory, gpu.utilisation] for gpu in visible_gpus(os.environ)],
        "address": address,
        "port": _greeter(address).getsockname()[1],
    }


def connect(hosts: list[list[Any]], patience_s: float) -> dict[str, Any]:
    """Connect to the nodes of all hosts at the same time, and return the names of the hosts that do not answer."""
    end = time.monotonic() + patience_s
    answered: list[str] = []
    threads = [threading.Thread(target=_connect, args=(*host, patience_s, answered), daemon=True) for host in hosts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return {"unreachable": [name for name, *_ in hosts if name not in answered]}


STEPS: dict[str, Callable[..., dict[str, Any]]] = {"look": look, "connect": connect}


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


@cache
def _greeter(address: str) -> socket.socket:
    """Return a server that sends a greeting to each caller until this process ends."""
    server = socket.create_server((address, 0), backlog=1024)

    def greet() -> None:
        while True:
            with contextlib.suppress(OSError):
                connection, _ = server.accept()
                with connection:
                    connection.settimeout(_GREET_S)
                    connection.sendall(_GREETING)

    threading.Thread(target=greet, daemon=True).start()
    return server


def _connect(name: str, address: str, port: int, patience_s: float, answered: list[str]) -> None:
    with contextlib.suppress(OSError), socket.create_connection((address, port), timeout=patience_s) as connection:
        if connection.recv(len(_GREETING)) == _GREETING:
            answered.append(name)
