"""SIGINT, SIGTERM and SIGHUP end a command line: with a message, its cleanup, and exit status 128 + signal number.

A Python handler runs only when the main thread returns to the interpreter. A kernel, a TensorFlow session or a wait for
another rank can keep it away for hours. A thread therefore reads the signals too, from the pipe that Python's C handler
writes to, and ends the process when the command has not ended ``GRACE_S`` after the signal.
"""

import contextlib
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
# Longer than a cleanup takes, and no longer than horovodrun waits between SIGTERM and SIGKILL.
GRACE_S = 5.0
# A launcher and a terminal may both send the same signal. A later one is from a person who does not want to wait.
_ONCE_MORE_S = 1.0
_END_S = 2.0  # for telling the other ranks


class Interrupted(KeyboardInterrupt):
    """A signal has ended the command line.

    Args:
        number: the signal's.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(number)


class _State:
    """What has happened so far; ``number`` is that of the first signal, if any."""

    number: int | None = None
    at = 0.0
    told = False
    handled = threading.Event()  # the command ends by itself, however long that takes


_STATE = _State()
_FORKING = threading.local()


def describe(number: int) -> str:
    """Return the message of a command that a signal has ended."""
    return "interrupted by Ctrl-C" if number == signal.SIGINT else f"interrupted by {signal.Signals(number).name}"


def tell(number: int, *more: str) -> None:
    """Print the message, and the lines ``more``, unless it has been printed before."""
    if not _STATE.told:
        _STATE.told = True
        with contextlib.suppress(OSError):  # nobody reads it any more
            os.write(2, "".join(f"{line}\n" for line in (describe(number), *more) if line).encode())


def received() -> int | None:
    """Return the number of the signal that is ending this command line, or None."""
    return _STATE.number


def take_time() -> None:
    """Let the command end by itself, even after ``GRACE_S``: it waits for processes that it has started."""
    _STATE.handled.set()


def end_at_once() -> None:
    """From here until the process ends, a signal ends it immediately: there is nothing to clean up.

    Only handlers that do the same or raise are replaced: a signal that was ignored when Python started, as under
    ``nohup``, stays ignored.
    """
    if threading.current_thread() is threading.main_thread():
        for number in _heard():
            signal.signal(number, _end)


@contextmanager
def raised(end: Callable[[int], object]) -> Iterator[None]:
    """Within the block, the first signal raises ``Interrupted`` in the main thread.

    Args:
        end: called with the exit status, in another thread, when the block has not ended ``GRACE_S`` later; the process
            ends when it returns.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _heard()}
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    pipe_before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    _STATE.number, _STATE.told = None, False
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
        if _STATE.number is None:  # otherwise the watchdog stays on duty until the process has ended
            os.close(writer)


def _heard() -> list[signal.Signals]:
    """Return the signals that may be handled: all but those that whoever started this process has it ignore."""
    return [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]


def _end(number: int, frame: FrameType | None) -> None:
    tell(number)
    os._exit(128 + number)


def _raise(number: int, frame: FrameType | None) -> None:
    if _STATE.number is None:
        _STATE.number, _STATE.at = number, time.monotonic()
        raise Interrupted(number)
    if time.monotonic() - _STATE.at > _ONCE_MORE_S:
        _end(number, frame)


def _watch(reader: int, end: Callable[[int], object]) -> None:
    """Return the thread: waits for a signal, and then for the command's end."""
    while (got := os.read(reader, 1)) and got[0] not in ENDING:
        continue
    if not got:
        os.close(reader)
        return
    if not _STATE.handled.wait(GRACE_S):
        tell(got[0])
        # In a thread of its own, since it may wait for something that the main thread holds.
        others = threading.Thread(target=end, args=(128 + got[0],), daemon=True)
        others.start()
        others.join(_END_S)
        os._exit(128 + got[0])


def _quiet_about_signals(before: Callable[[Any], object]) -> Callable[[Any], object]:
    """Return a hook that says nothing where a signal came at a place that swallows exceptions (``__del__``)."""

    def hook(unraisable: Any) -> None:
        if not isinstance(unraisable.exc_value, Interrupted):
            before(unraisable)

    return hook


def _hold_back() -> None:
    """Before a fork: a signal that reaches the child in its first moment waits there until ``_forget`` has run."""
    _FORKING.mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)


def _release() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _FORKING.mask)


def _forget() -> None:
    """In the child of a fork: signals act as in any program, and do not write into the parent's pipe."""
    for number in ENDING:
        if signal.getsignal(number) in (_raise, _end):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
            signal.set_wakeup_fd(-1)
    _release()


os.register_at_fork(before=_hold_back, after_in_parent=_release, after_in_child=_forget)
