"""Beside every rank's own work, a thread that notices when the rank waits in a collective for too long.

It then asks the others where they are, says so, and ends the run, or only says so, as was asked for. It is not Horovod
that is asked: over Gloo, Horovod keeps silent for ever, and a rank that hangs in a collective cannot speak in another.
The threads talk over connections of their own, and only when somebody has waited for long.
"""

import atexit
import contextlib
import json
import logging
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import NamedTuple

from xmc_tf.collective.communicator import Communicator
from xmc_tf.collective.stalls.marks import MARKS
from xmc_tf.collective.stalls.report import describe
from xmc_tf.collective.stalls.state import State, own_state
from xmc_tf.common.processes import process_state

log = logging.getLogger(__name__)

WARN_S = 60.0
_ANSWER_S = 2.0  # for one that is asked; the thread that answers needs no more than a moment
_WORD_S = 6.0  # for the one that is to speak, before another does
_LINGER_S = 3.0  # before the others end: the speaker is to be the first, whose words are then quoted


class Peer(NamedTuple):
    """Where the watch of a rank listens."""

    pid: int
    host: str
    names: tuple[str, ...]
    port: int


class StallWatch:
    """One rank's watch. All ranks make theirs together.

    Args:
        world: the ranks.
        timeout: seconds after which a wait ends the run; None never does.
        warn_after: seconds after which one is spoken of.
    """

    def __init__(self, world: Communicator, timeout: float | None, warn_after: float = WARN_S) -> None:
        self.rank, self.host = world.rank, world.host
        self.timeout, self.warn_after = timeout, warn_after
        one_host = len(set(world.allgather(world.host))) == 1
        self._server = socket.create_server(("127.0.0.1" if one_host else "", 0), backlog=128)
        names = ("127.0.0.1",) if one_host else _own_names()
        self._token = world.broadcast(secrets.token_hex(16))
        self._peers = world.allgather(Peer(os.getpid(), world.host, names, self._server.getsockname()[1]))
        self._over, self._told = threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=work, name=f"xmc_tf {work.__name__}", daemon=True)
            for work in (self._listen, self._look)
        ]

    def start(self) -> None:
        """Begins to watch; ends with the process."""
        MARKS.kept = True
        for thread in self._threads:
            thread.start()
        # Before the interpreter takes TensorFlow apart, which the thread reads counters with.
        atexit.register(self.stop)

    def stop(self) -> None:
        """Ends the watch, and not the run."""
        self._over.set()
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for somebody to ask
        self._server.close()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(timeout=_ANSWER_S)
        atexit.unregister(self.stop)

    def _limit(self) -> float:
        return min(self.warn_after, self.timeout or self.warn_after)

    def _interval(self) -> float:
        return min(max(self._limit() / 20, 0.05), 2.0)

    def _look(self) -> None:
        """Looks at the own waits every now and then."""
        warned = False
        while not self._over.wait(self._interval()):
            longest = own_state(self.rank, self.host).longest
            if self.timeout is not None and longest >= self.timeout:
                self._end_the_run(self.timeout)
            elif longest >= self.warn_after and not warned:
                warned = True
                if self._speaks(states := self._everybody(), self.warn_after):
                    log.warning("%s", "\n".join(describe(states, self.warn_after)))
            elif longest < self.warn_after:
                warned = False

    def _end_the_run(self, timeout: float) -> None:
        """Says who waits for whom and ends all ranks, or lets the rank do so whose part it is."""
        states = self._everybody()
        if self._told.is_set() or states[self.rank].longest < timeout:
            return  # another has spoken, or what was waited for has come after all
        if not self._speaks(states, timeout):
            patient_until = time.monotonic() + _WORD_S
            while time.monotonic() < patient_until and not self._over.wait(0.05):
                if self._told.is_set() or own_state(self.rank, self.host).longest < timeout:
                    return
        end = f"failed: the run is ended, as is asked for after {timeout:g} s"
        print("\n".join(["", *describe(states, timeout), end]), file=sys.stderr, flush=True)
        self._ask([state.rank for state in states if not state.silence], {"end": True})
        _end()

    def _speaks(self, states: Sequence[State], seconds: float) -> bool:
        """Whether it is this rank's part: the first of those that have waited for so long, or are about to have."""
        room = max(1.0, 2 * self._interval())
        return self.rank == min(state.rank for state in states if state.longest >= seconds - room)

    def _everybody(self) -> list[State]:
        """All ranks' states."""
        return [
            own_state(self.rank, self.host) if rank == self.rank else self._heard(rank, answer)
            for rank, answer in enumerate(self._ask(range(len(self._peers)), {}))
        ]

    def _heard(self, rank: int, answer: dict | str) -> State:
        if isinstance(answer, dict):
            return State(**answer)
        peer, silence = self._peers[rank], answer
        if peer.host == self.host:
            state = process_state(peer.pid)
            if state != "running":
                silence = "is stopped, by a signal or a debugger" if state == "stopped" else "has ended"
        return State(rank, peer.pid, peer.host, silence=silence)

    def _ask(self, ranks: Sequence[int], question: dict) -> list[dict | str]:
        """Each rank's answer, or why there is none."""
        answers: list[dict | str] = [""] * len(ranks)

        def ask(number: int) -> None:
            if ranks[number] != self.rank:
                answers[number] = self._ask_one(self._peers[ranks[number]], question)

        # No pool of threads: those refuse to work while a process ends.
        asking = [threading.Thread(target=ask, args=(number,), daemon=True) for number in range(len(ranks))]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
        return answers

    def _ask_one(self, peer: Peer, question: dict) -> dict | str:
        problem = "cannot be reached"
        for name in peer.names:
            try:
                with socket.create_connection((name, peer.port), timeout=_ANSWER_S) as connection:
                    connection.sendall(_line({"token": self._token, **question}))
                    with connection.makefile("rb") as answer:
                        return dict(json.loads(answer.readline()))
            except TimeoutError:
                return "does not answer: its host hangs, or what it does lets no other thread of it run"
            except ConnectionRefusedError:
                problem = "has ended, or is about to"
            except (OSError, ValueError) as error:
                problem = f"cannot be asked where it is ({error})"
        return problem

    def _listen(self) -> None:
        """Answers those who ask."""
        while not self._over.is_set():
            try:
                connection, _ = self._server.accept()
            except OSError:  # closed
                return
            with connection, contextlib.suppress(OSError, ValueError):
                connection.settimeout(_ANSWER_S)
                with connection.makefile("rb") as lines:
                    question = dict(json.loads(lines.readline(4096)))
                if not secrets.compare_digest(str(question.get("token")), self._token):
                    continue
                connection.sendall(_line(asdict(own_state(self.rank, self.host))))
                if question.get("end"):
                    self._told.set()
                    time.sleep(_LINGER_S)
                    _end()


def _end() -> None:
    """Ends this process, which is in a call that it will not come out of."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def _line(content: dict) -> bytes:
    return json.dumps(content).encode() + b"\n"


def _own_names() -> tuple[str, ...]:
    """By what other hosts may reach this one, the best first."""
    given = [os.environ.get("HOROVOD_HOSTNAME", ""), socket.getfqdn(), socket.gethostname()]
    return tuple(dict.fromkeys(name for name in given if name and name != "localhost"))
