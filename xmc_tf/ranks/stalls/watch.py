"""The stall watch: a thread on each rank reports to rank 0, over a connection of its own, where the rank waits.

Rank 0 reports ranks that wait too long in a collective, and those that they wait for; after a timeout, it ends the run.
Horovod's own check reports nothing over Gloo, and a rank that hangs in one collective cannot take part in another.
"""

import atexit
import contextlib
import logging
import os
import secrets
import socket
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from xmc_tf.common.errors import InputError
from xmc_tf.common.process.launcher import process_state
from xmc_tf.common.serialization import register
from xmc_tf.ranks.channels import ANYWHERE, LOOPBACK, Channel, Listener, address_towards, connect, interfaces
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.stalls.marks import MARKS

log = logging.getLogger(__name__)

# Seconds; 0 turns the watch off. The environment overrides the program, so that whoever starts a run decides.
VARIABLE = "XMC_TF_STALL_TIMEOUT"
# Seconds (Horovod's default: 30) after which Gloo ends a run with a silent rank, without naming it.
_GLOO_TIMEOUT = "HOROVOD_GLOO_TIMEOUT_SECONDS"
_TIME_TO_REPORT_S = 30

WARN_S = 60.0
_SILENT_S = 3.0  # without a message: it is sent each second
_END_S = 6.0  # after the timeout, a rank ends the run itself if rank 0 does not
_ENDED = "has ended or is about to end"
_LINGER_S = 3.0  # the other ranks end later: launchers quote the rank that ends first
_MOST_RANKS, _MOST_WAITS = 16, 3
# Code whose callers say more about where the program is.
_PACKAGE = Path(__file__).resolve().parents[2]
_GENERATED = "__autograph_generated_file"
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})


@register
@dataclass(frozen=True)
class State:
    """The state of a rank."""

    rank: int
    pid: int
    host: str
    waits: dict[str, float] = field(default_factory=dict)  # seconds in each collective, the longest first
    place: str = ""  # its current line of the program
    silence: str = ""  # the reason why the rank does not report this itself; empty if it does

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
        self.silent: list[str] = []  # a line for each rank that neither reports its state nor has ended
        self._ranks = world.allgather(State(world.rank, os.getpid(), world.host))
        # What rank 0 has heard of the other ranks, and when; the other ranks, of rank 0.
        self._heard = {one.rank: (one, time.monotonic()) for one in self._ranks}
        self._channels: dict[int, Channel] = {}
        hosts = world.allgather((world.host, os.environ.get("HOROVOD_HOSTNAME") or socket.getfqdn()))
        self._stopped = threading.Event()
        self._listener: Listener | None = None
        secret = secrets.token_bytes(32) if self.rank == 0 else b""
        if self.rank == 0:
            self._listener = Listener(_own_address(hosts), secret, self._hear)
        found = world.broadcast((self._listener.address, secret) if self._listener else None)
        assert found is not None
        self.address, self._secret = found
        target = self._watch_all if self.rank == 0 else self._report
        self._thread = threading.Thread(target=target, name="xmc_tf stall watch", daemon=True)

    def start(self) -> None:
        MARKS.kept = True
        self._thread.start()
        # The thread reads TensorFlow variables, so it must stop before the interpreter destroys them.
        atexit.register(self.stop)

    def stop(self) -> None:
        self._stopped.set()
        if self._listener is not None:
            self._listener.close()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=_SILENT_S)
        for channel in list(self._channels.values()):
            channel.close()
        atexit.unregister(self.stop)

    def _interval(self) -> float:
        return min(max(min(self.warn_after, self.timeout or self.warn_after) / 20, 0.05), 1.0)

    def _watch_all(self) -> None:
        """Rank 0: report ranks that wait too long."""
        warned = False
        while not self._stopped.wait(self._interval()):
            states = self.states()
            self.silent = [_line(one) for one in states if one.silence and "has ended" not in one.silence]
            self._send_all(silent=self.silent)
            longest = max(state.longest for state in states)
            if self.timeout is not None and longest >= self.timeout:
                self._end_run(states, self.timeout)
            elif longest >= self.warn_after and not warned:
                log.warning("%s", "\n".join(describe(states, self.warn_after)))
            warned = longest >= self.warn_after

    def states(self) -> list[State]:
        """Return the state of each rank on rank 0; on other ranks, that of this one and of rank 0."""
        here = current_state(self.rank, self.host)
        others = self._ranks if self.rank == 0 else self._ranks[:1]
        return sorted((here, *(self._known(one) for one in others if one.rank != self.rank)), key=lambda one: one.rank)

    def _known(self, other: State) -> State:
        state, at = self._heard[other.rank]
        if not state.silence and time.monotonic() - at < _SILENT_S:
            return state
        on_host = process_state(other.pid) if other.host == self.host else "running"
        silence = state.silence or "does not answer: its host hangs, or a call blocks all its threads"
        silence = {"stopped": "is stopped, by a signal or a debugger", "ended": "has ended"}.get(on_host, silence)
        return replace(other, silence=silence)

    def _hear(self, channel: Channel) -> None:
        """Rank 0: note the states of another rank until it ends."""
        rank = None
        try:
            while True:
                state = State(**channel.receive())
                rank = state.rank
                self._channels[rank], self._heard[rank] = channel, (state, time.monotonic())
        except OSError:
            if rank is not None:
                self._heard[rank] = replace(self._ranks[rank], silence=_ENDED), time.monotonic()

    def _send_all(self, **message: object) -> None:
        for channel in list(self._channels.values()):
            with contextlib.suppress(OSError):  # it has ended
                channel.send(**message)

    def _report(self) -> None:
        """Ranks other than 0: send this rank's state to rank 0, and end when it says so, or if it hangs itself."""
        channel = None
        while not self._stopped.wait(self._interval()):
            state = current_state(self.rank, self.host)
            try:
                if channel is None:
                    channel = self._channels[0] = connect(self.address, self._secret)
                channel.send(**asdict(state))
                while message := channel.receive_now():
                    self._heard[0] = self._ranks[0], time.monotonic()
                    self.silent = message.get("silent", self.silent)
                    if "end" in message:
                        time.sleep(_LINGER_S)
                        _exit()
            except OSError as error:
                log.debug("the stall watch of rank 0: %s", error)
                if channel is not None:
                    self._heard[0] = replace(self._ranks[0], silence=_ENDED), time.monotonic()
            known = self._known(self._ranks[0])
            if known.silence and "has ended" not in known.silence:
                self.silent = [_line(known)]
            if self.timeout is not None and state.longest >= self.timeout + _END_S:
                self._end_run([known, state], self.timeout)

    def _end_run(self, states: Sequence[State], timeout: float) -> None:
        end = f"failed: aborted after {timeout:g} s without progress ({self.setting})"
        print("\n".join(["", *describe(states, timeout), end]), file=sys.stderr, flush=True)
        self._send_all(end=True)
        _exit()


def _own_address(hosts: Sequence[tuple[str, str]]) -> str:
    """Return the address at which the other ranks reach this host, the first one; the loopback if they are on it."""
    others = [name for host, known_as in hosts if host != hosts[0][0] for name in (known_as, host)]
    if not others:
        return LOOPBACK
    interface = os.environ.get("HOROVOD_GLOO_IFACE") or os.environ.get("HOROVOD_IFACE")
    own = [address for address, (name, _) in interfaces().items() if name == interface]
    return own[0] if own else address_towards([name for name in others if name != "localhost"] + [ANYWHERE])


def _exit() -> None:
    """End this process, whose main thread hangs in a call."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


_watch: StallWatch | None = None


def timeout_of(environment: Mapping[str, str], given: float | None = None) -> float | None:
    """Return the timeout in seconds (None: no timeout, 0: no watch). The environment overrides ``given``."""
    if given is not None and not given > 0:
        raise InputError("invalid stall_timeout", expected="a number of seconds above 0, or None", received=repr(given))
    text = environment.get(VARIABLE)
    if not text:
        return given
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise InputError(f"invalid {VARIABLE}", expected="a number of seconds, or 0 for no watch", received=repr(text))
    return seconds


def outlast_stalls(environment: MutableMapping[str, str], given: float | None = None) -> None:
    """Let Gloo wait until the watch has ended the run. Horovod, which is not initialized yet, reads the limit."""
    if timeout := timeout_of(environment, given):
        environment.setdefault(_GLOO_TIMEOUT, str(int(timeout) + _TIME_TO_REPORT_S))


def silent_ranks() -> list[str]:
    """Return a line for each rank that neither answers nor has ended; none if this rank has no watch."""
    return [] if _watch is None else _watch.silent


def watch_for_stalls(world: Communicator, stall_timeout: float | None = None) -> StallWatch | None:
    """Watch this rank's waits: log a wait of a minute, and end the run after ``stall_timeout`` seconds.

    All ranks must call this.
    """
    global _watch
    timeout = timeout_of(os.environ, stall_timeout)
    if world.size == 1 or timeout == 0:
        return None
    if _watch is None:
        _watch = StallWatch(world, timeout)
        _watch.start()
    elif timeout is not None:
        _watch.timeout = timeout
    return _watch
