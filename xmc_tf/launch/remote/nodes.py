"""The master's side of nodes that were started by hand: they connect to it, and run the commands that it sends.

horovodrun and mpiexec reach the nodes through ``relay.py``, which they start in place of ssh.
"""

import contextlib
import itertools
import logging
import os
import shlex
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xmc_tf.common.errors import InputError
from xmc_tf.common.process.run_records import TemporaryFolder
from xmc_tf.launch.hosts.hosts import THIS_HOST, Host, Hosts, is_here, make_host
from xmc_tf.launch.remote.keepalive import end_when_lost
from xmc_tf.launch.remote.relay import EXIT, KILL, RUN
from xmc_tf.ranks.channels.frames import FrameError, Unpacker, frame, number_of, receive
from xmc_tf.ranks.channels.listener import Listener

log = logging.getLogger(__name__)

PURPOSE = "node"
HELLO, END = "hello", "end"  # from a node, with its number of ranks; to a node, with the exit status of the run
_HELLO_S = 10.0


class _Connection:
    """A connection on which several threads send."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket, self._sending = connection, threading.Lock()

    def send(self, message: dict[str, Any]) -> None:
        with self._sending, contextlib.suppress(OSError):  # the receiving thread notices the end
            self.socket.sendall(frame(message))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


class Nodes:
    """The nodes of a run, as a way to run commands on them.

    Args:
        address: the address to listen on.
        port: the port to listen on.
        secret: the secret that all nodes know.
        timeout_s: the maximum seconds to wait for all nodes, and until a lost node is noticed.
    """

    def __init__(self, address: str, port: int, secret: bytes, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._folder = TemporaryFolder()  # readable by this user only
        self._path = Path(self._folder.name, "relay")
        self._nodes: dict[str, _Connection] = {}
        self._hosts: dict[int, Host] = {}
        self._commands: dict[int, tuple[str, _Connection]] = {}
        self._numbers, self._changed = itertools.count(), threading.Condition()
        self._write_ssh()
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(self._path))
        self._server.listen(128)
        threading.Thread(target=self._accept_commands, daemon=True).start()
        try:
            self._listener = Listener([address], secret, PURPOSE, self._welcome, port=port)
        except OSError as error:
            self._folder.cleanup()
            raise InputError(
                f"--master-port {port}: cannot listen on {address}", received=str(error), fix="choose another port"
            ) from None

    def wait(self, here: int, nodes: int | None, other_slots: int | None) -> Hosts:
        """Wait for all nodes, and return the hosts of the run.

        Args:
            here: the number of ranks of this host.
            nodes: the number of nodes, or None.
            other_slots: the number of ranks of all other nodes, or None.

        Raises:
            InputError: they have not all connected in time.
        """

        def complete() -> bool:
            slots = sum(host.slots for host in self._hosts.values())
            return (nodes is None or len(self._hosts) == nodes - 1) and (other_slots is None or slots >= other_slots)

        with self._changed:
            if not self._changed.wait_for(complete, self._timeout_s):
                raise InputError(self._missing(nodes, other_slots), fix="start the same command on each node")
            others = [self._hosts[number] for number in sorted(self._hosts)]
        total = sum(host.slots for host in others)
        if other_slots is not None and total != other_slots:
            raise InputError("--other-gpus", expected=f"{total}, the sum of the other nodes", received=str(other_slots))
        return Hosts([Host(THIS_HOST, here), *others], "the nodes")

    @property
    def program(self) -> str:
        """The program with its options."""
        return shlex.join(self._relay)

    def command(self, host: str, line: str) -> list[str]:
        """Return the command of the relay."""
        return [*self._relay, host, line]

    def environment(self) -> dict[str, str]:
        """Return the search path on which horovodrun finds the relay as ``ssh``."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        return {"PATH": f"{self._folder.name}{os.pathsep}{path}"}

    def address_here(self, hosts: Sequence[str]) -> str:
        """Return the address at which the first node has reached this host."""
        for connection in self._nodes.values():
            with contextlib.suppress(OSError):
                return str(connection.socket.getsockname()[0])
        return "127.0.0.1"

    def close(self, status: int) -> None:
        """Tell all nodes that the run has ended with this status."""
        self._listener.close()
        for node in list(self._nodes.values()):
            node.send({"kind": END, "status": status})
            node.close()
        self._server.close()
        self._folder.cleanup()

    @property
    def _relay(self) -> list[str]:
        return [sys.executable, "-m", "xmc_tf.launch.remote.relay", str(self._path)]

    def _write_ssh(self) -> None:
        script = Path(self._folder.name, "ssh")
        script.write_text(f'#!/bin/sh\nexec {self.program} "$@"\n')
        script.chmod(0o700)

    def _missing(self, nodes: int | None, other_slots: int | None) -> str:
        if nodes is not None:
            names = ", ".join(str(number) for number in range(1, nodes) if number not in self._hosts)
            return f"no connection from node {names} within {self._timeout_s:g} s"
        slots = sum(host.slots for host in self._hosts.values())
        return f"{slots} of {other_slots} other GPUs have connected within {self._timeout_s:g} s"

    def _welcome(self, connection: socket.socket, caller: int, called: int) -> None:
        threading.Thread(target=self._serve_node, args=(connection, caller), daemon=True).start()

    def _serve_node(self, connection: socket.socket, number: int) -> None:
        """Register a node, and forward what its commands print, until its connection ends."""
        node, name = _Connection(connection), f"node-{number}"
        while is_here(name):
            name += "x"
        try:
            end_when_lost(connection, self._timeout_s)
            host = make_host(name, number_of(receive(connection, _HELLO_S), "slots"), f"node {number}")
            connection.settimeout(None)
            with self._changed:
                if number < 1 or name in self._nodes:
                    raise FrameError(f"node {number} is connected already")
                self._hosts[number], self._nodes[name] = host, node
                self._changed.notify_all()
        except (OSError, ValueError) as error:
            log.warning("refused node %d: %s", number, error)
            node.close()
            return
        unpacker = Unpacker()
        with contextlib.suppress(OSError, ValueError):
            while data := connection.recv(1 << 16):
                for message in unpacker.feed(data):
                    self._forward(message)
        with self._changed:
            self._nodes.pop(name, None)
            lost = [command for command, (host_name, _) in self._commands.items() if host_name == name]
        for command in lost:
            self._commands.pop(command)[1].close()

    def _forward(self, message: dict[str, Any]) -> None:
        """Forward a message of a node to the relay that has started the command."""
        command = self._commands.get(number_of(message, "command"))
        if command is not None:
            command[1].send(message)
            if message["kind"] == EXIT:
                self._commands.pop(message["command"], None)

    def _accept_commands(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                connection, _ = self._server.accept()
                threading.Thread(target=self._serve_command, args=(_Connection(connection),), daemon=True).start()

    def _serve_command(self, relay: _Connection) -> None:
        """Forward the input of a command to its node, until the relay ends."""
        number, unpacker, node = next(self._numbers), Unpacker(), None
        with contextlib.suppress(OSError, ValueError, KeyError):
            while data := relay.socket.recv(1 << 16):
                for message in unpacker.feed(data):
                    if message["kind"] == RUN:
                        with self._changed:
                            node = self._nodes[message["host"]]
                            self._commands[number] = (message["host"], relay)
                    if node is not None:
                        node.send({**message, "command": number})
        if node is not None and self._commands.pop(number, None) is not None:
            node.send({"kind": KILL, "command": number})
        relay.close()
