"""Beside every rank's own work, a thread that notices when the rank waits in a collective for too long.

It then asks the others where they are, says so, and ends the run, or only says so, as was asked for. It is not Horovod
that is asked: over Gloo, Horovod keeps silent for ever, and a rank that hangs in a collective cannot speak in another.
The threads talk over connections of their own, and only when somebody has waited for long.
"""

import atexit
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import NamedTuple

from xmc_tf.common.process.states import process_state
from xmc_tf.common.wire.format import register
from xmc_tf.ranks.channels import frames
from xmc_tf.ranks.channels.addresses import addresses_by_host
from xmc_tf.ranks.channels.handshake import call, new_secret
from xmc_tf.ranks.channels.listener import Listener
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.stalls.marks import MARKS
from xmc_tf.ranks.stalls.report import describe
from xmc_tf.ranks.stalls.state import State, own_state

log = logging.getLogger(__name__)

WARN_S = 60.0
_ANSWER_S = 2.0  # for one that is asked; the thread that answers needs no more than a moment
_WORD_S = 6.0  # for the one that is to speak, before another does
_PURPOSE = "stalls"
_LINGER_S = 3.0  # before the others end: the speaker is to be the first, whose words are then quoted


@register
class Peer(NamedTuple):
    """Where the watch of a rank listens: address and port for the ranks of each host."""

    pid: int
    host: str
    endpoints: dict[str, tuple[str, int]]


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
        addresses = addresses_by_host(world)
        self._secret = world.broadcast(new_secret())
        self._over, self._told = threading.Event(), threading.Event()
        self._listener = Listener(addresses.values(), self._secret, _PURPOSE, self._welcome)
        ports = self._listener.ports
        endpoints = {host: (address, ports[address]) for host, address in addresses.items()}
        self._peers = world.allgather(Peer(os.getpid(), world.host, endpoints))
        self._thread = threading.Thread(target=self._look, name="xmc_tf stall watch", daemon=True)

    def start(self) -> None:
        """Begins to watch; ends with the process."""
        MARKS.kept = True
        self._thread.start()
        # Before the interpreter takes TensorFlow apart, which the thread reads counters with.
        atexit.register(self.stop)

    def stop(self) -> None:
        """Ends the watch, and not the run."""
        self._over.set()
        self._listener.close()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=_ANSWER_S)
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
        end = f"failed: aborted after {timeout:g} s without progress (--stall-timeout)"
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

    def _heard(self, rank: int, answer: State | str) -> State:
        if isinstance(answer, State):
            return answer
        peer, silence = self._peers[rank], answer
        if peer.host == self.host:
            state = process_state(peer.pid)
            if state != "running":
                silence = "is stopped, by a signal or a debugger" if state == "stopped" else "has ended"
        return State(rank, peer.pid, peer.host, silence=silence)

    def _ask(self, ranks: Sequence[int], question: dict) -> list[State | str]:
        """Each rank's answer, or why there is none."""
        answers: list[State | str] = [""] * len(ranks)

        def ask(number: int) -> None:
            if ranks[number] != self.rank:
                answers[number] = self._ask_one(ranks[number], question)

        # No pool of threads: those refuse to work while a process ends.
        asking = [threading.Thread(target=ask, args=(number,), daemon=True) for number in range(len(ranks))]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
        return answers

    def _ask_one(self, rank: int, question: dict) -> State | str:
        address = self._peers[rank].endpoints[self.host]
        try:
            with call(
                address, self._secret, _PURPOSE, caller=self.rank, called=rank, patience_s=_ANSWER_S
            ) as connection:
                connection.sendall(frames.frame(question))
                return _state_of(rank, frames.receive(connection, _ANSWER_S))
        except TimeoutError:
            return "does not answer: its host hangs, or what it does lets no other thread of it run"
        except ConnectionRefusedError:
            return "has ended, or is about to"
        except (OSError, ValueError) as error:
            return f"cannot be asked where it is ({error})"

    def _welcome(self, connection: socket.socket, caller: int, called: int) -> None:
        """Answers a rank in a thread of its own: one that sends nothing must not delay the others."""
        threading.Thread(target=self._answer, args=(connection,), name="xmc_tf stall answer", daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        try:
            with connection:
                question = frames.receive(connection, _ANSWER_S)
                connection.sendall(frames.frame(asdict(own_state(self.rank, self.host))))
        except (OSError, ValueError) as error:
            log.debug("a rank that asked for this rank's state: %s", error)
            return
        if question.get("end") is True:
            self._told.set()
            time.sleep(_LINGER_S)
            _end()


def _state_of(rank: int, answer: dict) -> State:
    """Return the state that a rank has sent.

    Raises:
        ValueError: the answer is not a state.
    """
    waits = answer.get("waits")
    if not isinstance(waits, dict) or not all(type(seconds) is float for seconds in waits.values()):
        raise frames.FrameError("not a state of a rank")
    host, place = frames.text_of(answer, "host"), frames.text_of(answer, "place")
    return State(rank, frames.number_of(answer, "pid"), host, waits, place)


def _end() -> None:
    """Ends this process, which is in a call that it will not come out of."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
