"""A proxy that mpiexec starts in place of ssh (with host and command) or of a rank. A node starts the real process."""

import ctypes
import os
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any

from xmc_tf.ranks.channels.frames import frame, new_unpacker

# The variables with the sockets of the launcher and of the node.
LAUNCHER, NODE = "XMC_TF_LAUNCH_SOCKET", "XMC_TF_LAUNCH_NODE"
_LOST = 255  # as of ssh
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)
_WITH_VALUE = "opiFlbcDEeIJLmOQRSWw"  # options of ssh that a value follows


def split_command(words: Sequence[str]) -> tuple[str, str]:
    """Return the host and the shell command from ssh's arguments. Options may also follow the host."""
    rest = list(words)
    for part in range(2):
        while rest and rest[0].startswith("-"):
            has_value = len(rest[0]) == 2 and rest[0][1] in _WITH_VALUE
            del rest[: 2 if has_value else 1]
        if part == 0:
            host, *rest = rest
    return host, " ".join(rest)


def die_with_parent() -> None:
    """Make the kernel kill this process when its parent ends for any reason."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    """Ask the launcher or the node to start the real process, and exit with its status."""
    die_with_parent()
    variable, request = NODE, dict[str, Any](environment=dict(os.environ))
    if len(sys.argv) > 1:
        host, line = split_command(sys.argv[1:])
        variable, request = LAUNCHER, {"host": host, "line": line}
    with socket.socket(socket.AF_UNIX) as starter:
        starter.connect(os.environ[variable])
        starter.sendall(frame(request))
        unpacker = new_unpacker()
        while data := starter.recv(1 << 16):
            unpacker.feed(data)
            for answer in unpacker:
                os._exit(answer["status"] % 256)
    os._exit(_LOST)


if __name__ == "__main__":
    main()
