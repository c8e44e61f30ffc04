"""The stall watch: a thread on each rank that notices when the rank waits too long in a collective.

It asks the other ranks for their states, over separate connections, and reports them; after a timeout, it ends the run.
Horovod's own check reports nothing over Gloo, and a rank that hangs in one collective cannot take part in another.
"""

import atexit
import logging
import os
import socket
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

from xmc_tf.common.process.launcher import process_state
from xmc_tf.common.serialization import register
from xmc_tf.ranks.channels import frames
from xmc_tf.ranks.channels.addresses import addresses_by_host
from xmc_tf.ranks.channels.handshake import call, new_secret
from xmc_tf.ranks.channels.listener import Listener
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.stalls.marks import MARKS

log = logging.getLogger(__name__)

WARN_S = 60.0
_ANSWER_TIMEOUT_S = 2.0  # for the state of a rank; its thread answers at once
_REPORT_TIMEOUT_S = 6.0  # for the rank that is to report, before another one does
_PURPOSE = "stalls"
_ENDED = "has ended"
_LINGER_S = 3.0  # the other ranks end later: launchers quote the rank that ends first
_MOST_RANKS, _MOST_WAITS = 16, 3
# Code whose callers say more about where the program is.
_PACKAGE = Path(__file__).resolve().parents[2]
_GENERATED = "__autograph_generated_file"
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})


@dataclass(frozen=True)
class State:
    """The state of a rank, as reported to the ranks that wait for it."""

    rank: int
    pid: int
    host: str
    waits: dict[str, float] = field(default_factory=dict)  # seconds in each collective, the longest first
    place: str = ""  # its current line of the program
    silence: str = ""  # the reason why the rank did not report this itself; empty if it did

    @property
    def longest(self) -> float:
        return max(self.waits.values(), default=0.0)


def current_state(rank: int, host: str) -> State:
    return State(rank, os.getpid(), host, MARKS.waits(), place())


def place() -> str:
    """Return the innermost line of the main thread that is in the user's program, or else in this package."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    if frame is None:
        return ""
    frames = traceback.extract_stack(frame)
    for skipped in (_PACKAGE, _PACKAGE / "collective"):
        for line in reversed(frames):
            path = Path(line.filename)
            foreign = line.filename.startswith(("<", *_LIBRARIES)) or path.name.startswith(_GENERATED)
            if not foreign and not path.is_relative_to(skipped):
                return f"{path.name}:{line.lineno} in {line.name}: {line.line}"
    return ""


def describe(states: Sequence[State], seconds: float) -> list[str]:
    """Return the lines of the report: headline, longest-waiting rank, ranks that are not in this call, other ranks."""
    first = max(states, key=lambda state: (round(state.longest), -state.rank))
    name = next(iter(first.waits), "")
    elsewhere = [state for state in states if name not in state.waits]
    others = [state for state in states if name in state.waits and state.rank != first.rank]
    head = f"stall: rank {first.rank} has waited {seconds:g} s for "
    if elsewhere:
        numbers = ", ".join(str(state.rank) for state in elsewhere[:_MOST_RANKS])
        more = ", …" if len(elsewhere) > _MOST_RANKS else ""
        head += f"rank {numbers}{more}, which {'are' if len(elsewhere) > 1 else 'is'} elsewhere"
    else:
        head += "an answer, and all ranks are in the same call: check the network between them"
    lines = [head, *(f"  {_line(state)}" for state in [first, *elsewhere, *others][:_MOST_RANKS])]
    return lines if len(states) <= _MOST_RANKS else [*lines, f"  and {len(states) - _MOST_RANKS} more ranks"]


def _line(state: State) -> str:
    who = f"rank {state.rank} (pid {state.pid} on {state.host})"
    if state.silence:
        return f"{who} {state.silence}"
    waits = [f"{name} for {seconds:.0f} s" for name, seconds in state.waits.items()]
    if len(waits) > _MOST_WAITS:
        waits[_MOST_WAITS:] = [f"{len(waits) - _MOST_WAITS} more"]
    what = f"waits in {', '.join(waits)}" if waits else "is in no collective"
    return f"{who} {what}" + (f"; {state.place}" if state.place else "")


@register
class Endpoints(NamedTuple):
    """The addresses and ports at which a rank's watch listens, by the host whose ranks use them."""

    pid: int
    host: str
    addresses: dict[str, tuple[str, int]]


class StallWatch:
    """The stall watch of a rank. All ranks must create it."""

    def __init__(
        self,
        world: Communicator,
        timeout: float | None,
        warn_after: float = WARN_S,
        setting: str = "--stall-timeout",  # name of the timeout in messages
    ) -> None:
        self.rank, self.host = world.rank, world.host
        self.timeout, self.warn_after, self.setting = timeout, warn_after, setting
        addresses = addresses_by_host(world)
        self._secret = world.broadcast(new_secret())
        self._stopped, self._reported = threading.Event(), threading.Event()
        self._listener = Listener(addresses.values(), self._secret, _PURPOSE, self._answer)
        ports = self._listener.ports
        endpoints = {host: (address, ports[address]) for host, address in addresses.items()}
        self._endpoints = world.allgather(Endpoints(os.getpid(), world.host, endpoints))
        self._thread = threading.Thread(target=self._watch_waits, name="xmc_tf stall watch", daemon=True)

    def start(self) -> None:
        MARKS.kept = True
        self._thread.start()
        # The thread reads TensorFlow variables, so it must stop before the interpreter destroys them.
        atexit.register(self.stop)

    def stop(self) -> None:
        self._stopped.set()
        self._listener.close()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=_ANSWER_TIMEOUT_S)
        atexit.unregister(self.stop)

    def silent_ranks(self) -> list[str]:
        """Return a line for each rank that neither answers nor has ended."""
        states = self._ask(range(len(self._endpoints)), {})
        return [_line(state) for state in states if state.silence and not state.silence.startswith(_ENDED)]

    def _interval(self) -> float:
        return min(max(min(self.warn_after, self.timeout or self.warn_after) / 20, 0.05), 2.0)

    def _watch_waits(self) -> None:
        warned = False
        while not self._stopped.wait(self._interval()):
            longest = current_state(self.rank, self.host).longest
            if self.timeout is not None and longest >= self.timeout:
                self._end_run(self.timeout)
            elif longest >= self.warn_after and not warned:
                warned = True
                if self._reports(states := self._ask(range(len(self._endpoints)), {}), self.warn_after):
                    log.warning("%s", "\n".join(describe(states, self.warn_after)))
            elif longest < self.warn_after:
                warned = False

    def _end_run(self, timeout: float) -> None:
        """Report the stall and end all ranks, unless another rank does this."""
        states = self._ask(range(len(self._endpoints)), {})
        if self._reported.is_set() or states[self.rank].longest < timeout:
            return  # another rank has reported, or the wait is over
        if not self._reports(states, timeout):
            deadline = time.monotonic() + _REPORT_TIMEOUT_S
            while time.monotonic() < deadline and not self._stopped.wait(0.05):
                if self._reported.is_set() or current_state(self.rank, self.host).longest < timeout:
                    return
        end = f"failed: aborted after {timeout:g} s without progress ({self.setting})"
        print("\n".join(["", *describe(states, timeout), end]), file=sys.stderr, flush=True)
        self._ask([state.rank for state in states if not state.silence], {"end": True})
        _exit()

    def _reports(self, states: Sequence[State], seconds: float) -> bool:
        """Return whether this rank is the one to report: the lowest rank that has waited about ``seconds``."""
        room = max(1.0, 2 * self._interval())
        # If all waits have ended since they were noticed, nobody reports.
        return self.rank == min((state.rank for state in states if state.longest >= seconds - room), default=None)

    def _ask(self, ranks: Sequence[int], question: dict) -> list[State]:
        """Return the state of each rank, or the reason for its silence."""
        states: dict[int, State] = {}

        def ask(rank: int) -> None:
            own = rank == self.rank
            states[rank] = current_state(rank, self.host) if own else self._ask_one(rank, question)

        # Thread pools refuse new work while the process exits.
        asking = [threading.Thread(target=ask, args=(rank,), daemon=True) for rank in ranks]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
        return [states[rank] for rank in ranks]

    def _ask_one(self, rank: int, question: dict) -> State:
        other = self._endpoints[rank]
        try:
            with call(
                other.addresses[self.host], self._secret, _PURPOSE, caller=self.rank, called=rank,
                patience_s=_ANSWER_TIMEOUT_S,
            ) as connection:  # fmt: skip
                connection.sendall(frames.frame(question))
                return State(**frames.receive(connection, _ANSWER_TIMEOUT_S))
        except TimeoutError:
            silence = "does not answer: its host hangs, or a call blocks all its threads"
        except ConnectionRefusedError:
            silence = f"{_ENDED} or is about to end"
        except OSError as error:
            silence = f"cannot be asked for its state ({error})"
        if other.host == self.host and (state := process_state(other.pid)) != "running":
            silence = "is stopped, by a signal or a debugger" if state == "stopped" else _ENDED
        return State(rank, other.pid, other.host, silence=silence)

    def _answer(self, connection: socket.socket, caller: int, called: int) -> None:
        try:
            with connection:
                question = frames.receive(connection, _ANSWER_TIMEOUT_S)
                connection.sendall(frames.frame(asdict(current_state(self.rank, self.host))))
        except OSError as error:
            log.debug("a request for this rank's state failed: %s", error)
            return
        if question.get("end") is True:
            self._reported.set()
            time.sleep(_LINGER_S)
            _exit()


def _exit() -> None:
    """End this process, whose main thread hangs in a call."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
