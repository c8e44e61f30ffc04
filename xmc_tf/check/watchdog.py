"""A watchdog process beside a rank's own, which notices when the rank hangs in a collective.

A thread could not do this: a call that waits for other ranks may block all Python threads, as MPI's start does.
"""

import os
import signal
import sys
import time

from xmc_tf.check.status_files import HEARTBEAT_S, StatusFiles
from xmc_tf.common.process.states import die_with_parent, process_state


def start_watchdog(status: StatusFiles, timeout: float) -> None:
    """Continue in a child process. The parent becomes its watchdog, and ends with the child's status or when it hangs.

    Call this before anything is started that does not survive a fork.

    Args:
        status: the rank's status files.
        timeout: the maximum seconds of a stage.
    """
    status.enter("start")
    status.write_heartbeat("running")
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        die_with_parent()
        return
    os._exit(_watch(status, child, timeout))


def _watch(status: StatusFiles, child: int, timeout: float) -> int:
    """Wait for the child, and return the exit status."""
    entry, entered = status.entry(status.rank), time.monotonic()
    next_beat = 0.0
    while True:
        ended, wait_status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(wait_status)
            if code < 0:
                status.write_heartbeat("ended")  # so that ranks that wait for it report it
                return 128 - code
            status.leave()
            return code
        now = time.monotonic()
        if now >= next_beat:
            next_beat = now + HEARTBEAT_S
            newest = status.entry(status.rank)
            if newest is None:
                return _end(child)  # another rank has reported and removed the files
            status.write_heartbeat(process_state(child))
            if newest != entry:
                entry, entered = newest, now
        if now - entered > timeout:
            _report_hang(status, timeout)
            return _end(child)
        time.sleep(0.02)


def _end(child: int) -> int:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return 1


def _report_hang(status: StatusFiles, timeout: float) -> None:
    if not status.should_report():
        # The launcher ends all ranks when this one ends; let the other rank report first.
        time.sleep(3.0)
        return
    mine = status.entry(status.rank)
    behind = status.behind() or ["all ranks have reached this stage: check the network between them"]
    lines = [f"failed: no answer within {timeout:g} s in {mine.stage if mine else 'start'!r}"]
    print("\n".join([*lines, *(f"  {line}" for line in behind)]), file=sys.stderr, flush=True)
    status.clear()
