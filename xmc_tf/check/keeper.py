"""A process beside the rank's own, which looks at the clock while the other is inside a collective and cannot.

A thread would not do: what waits for other ranks does not always let Python's other threads run (MPI's start does not).
"""

import os
import signal
import sys
import time

from xmc_tf.check.roll import BEAT_S, Roll
from xmc_tf.common.process.states import die_with_parent, process_state


def keep(roll: Roll, timeout: float) -> None:
    """Goes on in a new process; the old one stays behind as its keeper and ends as it ends, or when it hangs.

    To be called before anything has been started that a fork would tear apart.

    Args:
        roll: the rank's.
        timeout: seconds that the rank may stay in one stage.
    """
    roll.enter("start")
    roll.beat("running")
    sys.stdout.flush()
    sys.stderr.flush()
    worker = os.fork()
    if worker == 0:
        die_with_parent()
        return
    os._exit(_watch(roll, worker, timeout))


def _watch(roll: Roll, worker: int, timeout: float) -> int:
    """Wait for the worker; gives the exit status."""
    entry, entered = roll.entry(roll.rank), time.monotonic()
    next_beat = 0.0
    while True:
        ended, status = os.waitpid(worker, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            if code < 0:
                roll.beat("ended")  # before its time: others that wait for it will want to know
                return 128 - code
            roll.leave()
            return code
        now = time.monotonic()
        if now >= next_beat:
            next_beat = now + BEAT_S
            newest = roll.entry(roll.rank)
            if newest is None:
                return _end(worker)  # another rank has spoken and taken the roll away
            roll.beat(process_state(worker))
            if newest != entry:
                entry, entered = newest, now
        if now - entered > timeout:
            _name_the_silent(roll, timeout)
            return _end(worker)
        time.sleep(0.02)


def _end(worker: int) -> int:
    os.kill(worker, signal.SIGKILL)
    os.waitpid(worker, 0)
    return 1


def _name_the_silent(roll: Roll, timeout: float) -> None:
    if not roll.speaks():
        # The one that speaks is to do so before the launcher ends it because of us.
        time.sleep(3.0)
        return
    mine = roll.entry(roll.rank)
    behind = roll.behind() or ["all ranks have come as far as this: look at the network between them"]
    lines = [f"failed: no answer within {timeout:g} s in {mine.stage if mine else 'start'!r}"]
    print("\n".join([*lines, *(f"  {line}" for line in behind)]), file=sys.stderr, flush=True)
    roll.clear()
