"""A proxy that mpiexec starts in place of ssh (with host and command) or of a rank. A node starts the real process."""

import contextlib
import ctypes
import os
import signal
import socket
import sys

from xmc_tf.ranks.channels import Channel

# The variables with the sockets of the launcher and of the node.
LAUNCHER, NODE = "XMC_TF_LAUNCH_SOCKET", "XMC_TF_LAUNCH_NODE"
_LOST = 255  # as of ssh
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def die_with_parent() -> None:
    """Make the kernel kill this process when its parent ends for any reason."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    """Ask the launcher or the node to start the real process, and exit with its status."""
    die_with_parent()
    for_ssh = len(sys.argv) > 1
    made = socket.socket(socket.AF_UNIX)
    made.connect(os.environ[LAUNCHER if for_ssh else NODE])
    starter = Channel(made)
    if for_ssh:
        host, *words = sys.argv[1:]
        starter.send(host=host, line=" ".join(words))  # as ssh joins them for the shell of the other host
    else:
        starter.send(environment=dict(os.environ))
    status = _LOST
    with contextlib.suppress(OSError):
        status = starter.receive()["status"] % 256
    os._exit(status)


if __name__ == "__main__":
    main()
