"""Handlers of SIGINT, SIGTERM and SIGHUP. They end a command with a message, cleanup, and exit status 128 + signal.

Python runs a handler only when the main thread returns to the interpreter. A kernel, or a wait for another rank, can
delay this by hours. So a thread also reads the signals, from the pipe to which Python's C handler writes them, and
ends the process if the command does not end in time.
"""

import contextlib
import errno
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Longer than cleanup takes, and at most what horovodrun waits between SIGTERM and SIGKILL.
GRACE_S = 5.0
# A launcher and a terminal may both send the signal. A later signal is from a user who does not want to wait.
_REPEAT_S = 1.0
_END_S = 2.0  # time limit to stop the other ranks


class Interrupted(KeyboardInterrupt):
    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(number)


class _SignalState:
    """The state of signal handling. ``number`` is the first signal that was received, or None."""

    number: int | None = None
    at = 0.0
    grace_s = GRACE_S
    announced = False
    handled = threading.Event()  # the command will end by itself, without a limit


_STATE = _SignalState()


def describe(number: int) -> str:
    return "interrupted by Ctrl-C" if number == signal.SIGINT else f"interrupted by {signal.Signals(number).name}"


def announce(number: int, *more: str) -> None:
    """Print the signal's message and the lines in ``more``. Later calls print nothing."""
    if not _STATE.announced:
        _STATE.announced = True
        with contextlib.suppress(OSError):  # the reader is gone
            os.write(2, "".join(f"{line}\n" for line in (describe(number), *more) if line).encode())


def received() -> int | None:
    """Return the signal that is ending this command, or None if there is none."""
    return _STATE.number


def allow_slow_end(seconds: float | None = None) -> None:
    """Set how long the command may take to end after a signal (initially ``GRACE_S``). None means no limit."""
    if seconds is None:
        _STATE.handled.set()
    else:
        _STATE.grace_s = seconds


def end_at_once() -> None:
    """Make signals end the process immediately. Signals that were already ignored (``nohup``) stay ignored."""
    if threading.current_thread() is threading.main_thread():
        for number in _handled():
            signal.signal(number, _end)


@contextmanager
def raised(end: Callable[[int], object]) -> Iterator[None]:
    """Raise ``Interrupted`` on the first signal. If the block does not end in time, call ``end(status)`` and exit."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _handled()}
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    pipe_before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    _STATE.number, _STATE.announced, _STATE.grace_s = None, False, GRACE_S
    _STATE.handled.clear()
    watchdog = threading.Thread(target=_watch, args=(reader, end), name="xmc_tf signals", daemon=True)
    watchdog.start()
    hook = sys.unraisablehook
    sys.unraisablehook = _quiet_about_signals(hook)
    for number in before:
        signal.signal(number, _raise)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        sys.unraisablehook = hook
        signal.set_wakeup_fd(pipe_before, warn_on_full_buffer=False)
        if _STATE.number is None:  # otherwise the watchdog runs until the process has ended
            os.close(writer)


def _handled() -> list[signal.Signals]:
    """Return the signals to handle: all except those that the parent process set to be ignored."""
    return [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]


def _end(number: int, frame: FrameType | None) -> None:
    announce(number)
    os._exit(128 + number)


def _raise(number: int, frame: FrameType | None) -> None:
    if _STATE.number is None:
        _STATE.number, _STATE.at = number, time.monotonic()
        raise Interrupted(number)
    if time.monotonic() - _STATE.at > _REPEAT_S:
        _end(number, frame)


def _watch(reader: int, end: Callable[[int], object]) -> None:
    while (got := os.read(reader, 1)) and got[0] not in ENDING:
        continue
    if not got:
        os.close(reader)
        return
    if not _STATE.handled.wait(_STATE.grace_s):
        announce(got[0])
        # In a new thread, because it may wait for something that the main thread holds.
        others = threading.Thread(target=end, args=(128 + got[0],), daemon=True)
        others.start()
        others.join(_END_S)
        os._exit(128 + got[0])


def _quiet_about_signals(before: Callable[[Any], object]) -> Callable[[Any], object]:
    """Return a hook for unraisable exceptions that hides ``Interrupted`` and full disks, which are already reported."""

    def hook(unraisable: Any) -> None:
        error = unraisable.exc_value
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
        if not full and not isinstance(error, Interrupted):
            before(unraisable)

    return hook
