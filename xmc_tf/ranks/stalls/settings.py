"""Whether and for how long ranks may wait for each other, and the watch over it, of which a process has one."""

import os
from collections.abc import Mapping

from xmc_tf.common.errors import InputError
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.stalls.watch import StallWatch

# Seconds; 0 keeps no watch. Who starts a run has the last word, so it overrules what the program says.
VARIABLE = "XMC_TF_STALL_TIMEOUT"

_watch: StallWatch | None = None


def timeout_of(environment: Mapping[str, str], given: float | None = None) -> float | None:
    """The seconds after which a wait ends the run: the environment's, or else those given, or None for never.

    Example:
        >>> timeout_of({"XMC_TF_STALL_TIMEOUT": "600"}, 30)
        600.0
    """
    if given is not None and not given > 0:
        raise InputError("stall_timeout", expected="a number of seconds above 0, or None", received=repr(given))
    text = environment.get(VARIABLE)
    if not text:
        return given
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise InputError(VARIABLE, expected="a number of seconds, or 0 to turn the watch off", received=repr(text))
    return seconds


def watch_for_stalls(world: Communicator, stall_timeout: float | None = None) -> StallWatch | None:
    """Has this rank's waits watched from now on; all ranks call it together.

    Waits are spoken of after a minute, and end the run after ``stall_timeout``. A second call changes the timeout.

    Args:
        world: the ranks.
        stall_timeout: seconds in one collective after which the run is ended; None never ends it. The environment's
            ``XMC_TF_STALL_TIMEOUT`` overrules it, and with 0 there is no watch.
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
