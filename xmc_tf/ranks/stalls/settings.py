import os
from collections.abc import Mapping, MutableMapping

from xmc_tf.common.errors import InputError
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.stalls.watch import StallWatch

# Seconds; 0 turns the watch off. The environment overrides the program, so that whoever starts a run decides.
VARIABLE = "XMC_TF_STALL_TIMEOUT"
# Seconds (Horovod's default: 30) after which Gloo ends a run with a silent rank, without naming it.
_GLOO_TIMEOUT = "HOROVOD_GLOO_TIMEOUT_SECONDS"
_TIME_TO_REPORT_S = 30

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
    return [] if _watch is None else _watch.silent_ranks()


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
