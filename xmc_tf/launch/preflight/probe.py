"""The probe of a host: ``python -m xmc_tf.launch.preflight.probe`` answers the launcher's requests on standard input.

Requests and answers are JSON objects, one per line; answers begin with ``MARK``, because login scripts may print, too.
The probe ends when its input ends. It then removes the secret of the run, which the ranks have read by then.
"""

import contextlib
import json
import os
import shutil
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

from xmc_tf.launch.preflight.looking import look
from xmc_tf.launch.remote.interfaces import address_towards, network_of

MARK = "xmc_tf-probe "
_GREETING = b"xmc_tf probe\n"
_GREET_S = 5.0


class Probe:
    """The answers of a probe; each method is named after a request."""

    def __init__(self) -> None:
        self._server: socket.socket | None = None
        self._secret: Path | None = None

    def clock(self) -> dict[str, Any]:
        """Return the time of this host."""
        return {"time": time.time()}

    def look(self, **request: Any) -> dict[str, Any]:
        """Return what is found on this host."""
        return look(**request)

    def listen(self, launcher: str) -> dict[str, Any]:
        """Listen for other hosts, on the address towards the launcher's."""
        address = address_towards([launcher])
        if address == "127.0.0.1":  # this is the launcher's host
            address = launcher
        self._server = socket.create_server((address, 0), backlog=1024)
        threading.Thread(target=self._greet, daemon=True).start()
        return {"address": address, "port": self._server.getsockname()[1], "network": network_of(address)}

    def connect(self, hosts: list[list[Any]], patience_s: float) -> dict[str, Any]:
        """Connect to the probes of other hosts, at the same time; return the names of those that do not answer."""
        end = time.monotonic() + patience_s
        answered: list[str] = []
        threads = [threading.Thread(target=_connect, args=(*host, patience_s, answered), daemon=True) for host in hosts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
        return {"unreachable": [name for name, *_ in hosts if name not in answered]}

    def secret(self, path: str, content: str) -> dict[str, Any]:
        """Write the secret of a run into a new folder that only this user can read."""
        file = Path(path)
        if file.is_file() and file.read_bytes().hex() == content:
            return {}  # the launcher's own file: the hosts share the folder for temporary files
        file.parent.mkdir(mode=0o700)
        self._secret = file
        file.write_bytes(bytes.fromhex(content))
        return {}

    def close(self) -> None:
        """Remove the secret."""
        if self._secret is not None:
            shutil.rmtree(self._secret.parent, ignore_errors=True)
            self._secret = None

    def _greet(self) -> None:
        assert self._server is not None
        while True:
            with contextlib.suppress(OSError):
                connection, _ = self._server.accept()
                with connection:
                    connection.settimeout(_GREET_S)
                    connection.sendall(_GREETING)


def _connect(name: str, address: str, port: int, patience_s: float, answered: list[str]) -> None:
    with (
        contextlib.suppress(OSError),
        socket.create_connection((address, port), timeout=patience_s) as connection,
    ):
        if connection.recv(len(_GREETING)) == _GREETING:
            answered.append(name)


def main() -> None:
    """Answer requests until the input ends."""
    probe = Probe()
    try:
        for line in sys.stdin:
            request = json.loads(line)
            try:
                answer = getattr(probe, request.pop("step"))(**request)
            except (OSError, ValueError) as error:
                answer = {"error": str(error)}
            print(MARK + json.dumps(answer), flush=True)
    finally:
        probe.close()
        os._exit(0)


if __name__ == "__main__":
    main()
