"""The launcher's connections to the nodes of a run."""

import contextlib
import logging
import os
import queue
import secrets
import shlex
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from xmc_tf.common.errors import InputError
from xmc_tf.launch.hosts import THIS_HOST, Host, Hosts, is_here, make_host
from xmc_tf.launch.node import ANSWER, ASK, EXIT, end_when_lost
from xmc_tf.ranks.channels import Channel, Listener

log = logging.getLogger(__name__)

_HELLO_S = 10.0
_MOST_EVENTS = 1000  # beyond these, the output of the ranks waits
_LEAVE_S = 2.0
Event = tuple[str, dict[str, Any] | None]


class NodeError(Exception):
    """Raised if a node is lost, does not answer in time, or reports an error."""


class NodeConnection:
    def __init__(self, name: str, channel: Channel, hello: dict[str, Any]) -> None:
        self.name, self.network, self.proxies = name, hello["network"], hello["proxies"]
        self.answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.channel = channel

    def send(self, kind: str, **fields: Any) -> None:
        with contextlib.suppress(OSError):  # the thread that reads notices the end
            self.channel.send(kind=kind, **fields)


class Nodes:
    def __init__(
        self,
        address: str,
        timeout_s: float,  # of the checks
        lost_after_s: float = 0.0,  # without an answer; 0 if all ranks are on this host
        *,
        secret: bytes | None = None,  # of nodes that users start; default: this starts them
        port: int = 0,
    ) -> None:
        self.address, self.timeout_s, self._lost_after_s = address, timeout_s, lost_after_s
        self._by_hand, self._secret = secret is not None, secret or secrets.token_bytes(32)
        self.events: queue.Queue[Event] = queue.Queue(_MOST_EVENTS)  # (host, message), or None when it is lost
        self.errors: dict[str, str] = {}
        self._names: list[str] = [THIS_HOST]  # by number
        self._by_number: dict[int, Host] = {}  # those that users start
        self._nodes: dict[str, NodeConnection] = {}
        self._processes: list[subprocess.Popen[str]] = []
        self._changed = threading.Condition()
        try:
            self._listener = Listener(address, self._secret, self._serve, port=port)
        except OSError as error:
            raise InputError(
                f"--master-port {port}: cannot listen on {address}", received=str(error), fix="choose another port"
            ) from None

    def __getitem__(self, host: str) -> NodeConnection:
        if (node := self._nodes.get(host)) is None:
            raise NodeError(f"the node of {host} is lost")
        return node

    def forget_events(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self.events.get_nowait()

    def send(self, kind: str, **fields: Any) -> None:
        for node in list(self._nodes.values()):
            node.send(kind, **fields)

    def start(self, hosts: Iterable[Host], seconds: float) -> None:
        """Start the missing nodes of these hosts, and wait for them. Failures are recorded in ``errors``."""
        names = [host.name for host in hosts]
        for name in names:
            self.errors.pop(name, None)
            if name not in self._nodes:
                self._start(name)
        with self._changed:
            self._changed.wait_for(lambda: all(name in self._nodes or name in self.errors for name in names), seconds)
        for name in names:
            if name not in self._nodes:
                self.errors.setdefault(name, "no answer in time")

    def wait(self, here: int, nodes: int) -> Hosts:
        """Wait for all nodes that users start. Return the hosts of the run, with ``here`` ranks on this host."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._by_number) == nodes - 1, self.timeout_s):
                missing = ", ".join(str(number) for number in range(1, nodes) if number not in self._by_number)
                raise InputError(
                    f"no connection from node {missing} within {self.timeout_s:g} s",
                    fix="start the same command on each node, or raise --timeout",
                )
            others = [host for _, host in sorted(self._by_number.items())]
        return Hosts([Host(THIS_HOST, here), *others], "the nodes")

    def ask_all(self, hosts: Iterable[Host], share: float, step: str, **fields: Any) -> dict[str, dict[str, Any]]:
        """Run a step of the checks on all nodes. Return answers by host, without hosts that fail (see ``errors``)."""
        end = time.monotonic() + share * self.timeout_s
        names = [host.name for host in hosts if host.name not in self.errors]
        nodes = [node for name in names if (node := self._nodes.get(name)) is not None]
        answers = {}
        for node in nodes:
            node.send(ASK, step=step, fields=fields)
        for node in nodes:
            try:
                answer = node.answers.get(timeout=max(0.01, end - time.monotonic()))
            except queue.Empty:
                node.channel.close()  # a late answer would be taken for that of the next question
                answer = {"error": "no answer in time"}
            if "error" in answer:
                self.errors[node.name] = answer["error"]
            else:
                answers[node.name] = answer
        return answers

    def close(self, status: int) -> None:
        self._listener.close()
        for node in list(self._nodes.values()):
            node.send(EXIT, status=status)
            node.channel.close()
        end = time.monotonic() + _LEAVE_S
        for process in self._processes:
            try:
                process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self, name: str) -> None:
        """Start the node of a host, here or over ssh. Other hosts are skipped if users start their nodes."""
        here = is_here(name)
        if self._by_hand and not here:
            return
        if name not in self._names:
            self._names.append(name)
        limits = self.timeout_s / 3, 0 if here else self._lost_after_s
        arguments = [*map(str, (*self._listener.address, self._names.index(name))), *(f"{one:g}" for one in limits)]
        over_ssh = [*ssh_command(self.timeout_s), name, _python_line(arguments)]
        process = subprocess.Popen(
            [sys.executable, "-m", "xmc_tf.launch.node", *arguments] if here else over_ssh, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            start_new_session=True,  # Ctrl-C reaches only the launcher
        )  # fmt: skip
        self._processes.append(process)
        with contextlib.suppress(OSError):  # it has ended, which the thread notices
            assert process.stdin is not None
            process.stdin.write(f"{self._secret.hex()}\n")
            process.stdin.close()
        threading.Thread(target=self._wait_for_end, args=(name, process), daemon=True).start()

    def _wait_for_end(self, name: str, process: subprocess.Popen[str]) -> None:
        """Wait until a node ends. If it has never connected, record its last line of output as the error."""
        lines: deque[str] = deque(maxlen=1)
        assert process.stdout is not None
        with process.stdout as stream:
            lines.extend(line.strip() for line in stream if line.strip())
        status = process.wait()
        with self._changed:
            if name not in self._nodes:
                self.errors[name] = lines[-1] if lines else f"ended with status {status}"
                self._changed.notify_all()

    def _serve(self, channel: Channel) -> None:
        """Register a node, and forward its messages until its connection ends."""
        if self._lost_after_s:
            end_when_lost(channel, self._lost_after_s)
        try:
            node = self._register(channel)
        except (OSError, ValueError, IndexError) as error:
            log.warning("refused a node: %s", error)
            return
        with contextlib.suppress(OSError):
            while True:
                message = channel.receive()
                if message["kind"] == ANSWER:
                    node.answers.put(message["answer"])
                else:
                    self.events.put((node.name, message))
        with self._changed:
            del self._nodes[node.name]
        node.answers.put({"error": "the connection is lost"})
        self.events.put((node.name, None))

    def _register(self, channel: Channel) -> NodeConnection:
        hello = channel.receive(_HELLO_S)
        number, slots = hello["number"], hello["slots"]
        name = f"node-{number}" if slots else self._names[number]
        while slots and is_here(name):
            name += "x"
        with self._changed:
            if name in self._nodes:
                raise ValueError(f"node {number} is connected already")
            if slots:
                self._by_number[number] = make_host(name, slots, f"node {number}")
            node = self._nodes[name] = NodeConnection(name, channel, hello)
            self._changed.notify_all()
        return node


def ssh_command(timeout_s: float) -> list[str]:
    """Return the ssh command for another host: without password, and with a third of the time limit to connect."""
    third = max(1, int(timeout_s / 3))
    options = ["BatchMode=yes", "StrictHostKeyChecking=accept-new", f"ConnectTimeout={third}"]
    # The client ends when the other host is lost.
    options += [f"ServerAliveInterval={third}", "ServerAliveCountMax=2", "LogLevel=ERROR"]
    return ["ssh", *(word for option in options for word in ("-o", option))]


def _python_line(arguments: Sequence[str]) -> str:
    """Return the shell command that starts a node on another host, in this folder and with this Python."""
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(Path(__file__).resolve().parents[2])]))
    # An installed package is found without the variable, which would only hide a different version.
    ours = "" if "site-packages" in path else f'PYTHONPATH={shlex.quote(path)}"${{PYTHONPATH:+:$PYTHONPATH}}" '
    command = shlex.join([sys.executable, "-m", "xmc_tf.launch.node", *arguments])
    return f"cd {shlex.quote(os.getcwd())} && {ours}exec {command}"
