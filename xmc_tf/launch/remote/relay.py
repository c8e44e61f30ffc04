"""A command on a node, called like ssh: ``python -m xmc_tf.launch.remote.relay SOCKET [ssh options] NODE COMMAND …``.

horovodrun and mpiexec start it in place of ssh, if the nodes were started by hand. The master (``nodes.py``), which
listens at SOCKET, forwards command, input and output.
"""

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Sequence

from xmc_tf.ranks.channels.frames import Unpacker, frame

# From this program: RUN once, then IN for pieces of the input, and EOF. From the node: OUT, ERR, and EXIT at the end.
# When this program ends early, the master sends KILL to the node.
RUN, IN, EOF, OUT, ERR, EXIT, KILL = "run", "in", "eof", "out", "err", "exit", "kill"
PIECE = 1 << 15
_WITH_VALUE = "opiFlbcDEeIJLmOQRSWw"  # options of ssh that a value follows


def split_command(words: Sequence[str]) -> tuple[str, str]:
    """Return host and shell line of the arguments of ssh, whose options may also follow the host.

    Example:
        >>> split_command(["-o", "BatchMode=yes", "node-1", "-p", "22", "cd /data;", "ls", "-l"])
        ('node-1', 'cd /data; ls -l')
    """
    rest = list(words)
    for part in range(2):
        while rest and rest[0].startswith("-"):
            has_value = len(rest[0]) == 2 and rest[0][1] in _WITH_VALUE
            del rest[: 2 if has_value else 1]
        if part == 0:
            host, *rest = rest
    return host, " ".join(rest)


def main() -> None:
    """Run the command on the node, and end with its status."""
    path, *words = sys.argv[1:]
    host, line = split_command(words)
    with socket.socket(socket.AF_UNIX) as master:
        master.connect(path)
        master.sendall(frame({"kind": RUN, "host": host, "line": line}))
        threading.Thread(target=_send_input, args=(master,), daemon=True).start()
        unpacker = Unpacker()
        while data := master.recv(1 << 16):
            for message in unpacker.feed(data):
                if message["kind"] == EXIT:
                    os._exit(message["status"] % 256)
                with contextlib.suppress(BrokenPipeError):
                    _write(1 if message["kind"] == OUT else 2, message["data"].encode("latin-1"))
    print(f"the connection to {host} is lost", file=sys.stderr, flush=True)
    os._exit(255)  # as of ssh


def _send_input(master: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := os.read(0, PIECE):
            master.sendall(frame({"kind": IN, "data": data.decode("latin-1")}))
        master.sendall(frame({"kind": EOF}))


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


if __name__ == "__main__":
    main()
