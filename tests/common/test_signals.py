"""Tests that signals end a command with a message and its exit status at any time."""

import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from xmc_tf.common.process import cli, signals

BEGIN = """
import atexit, ctypes, os, signal, subprocess, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from xmc_tf.common.process import cli, signals

def block():
    # A native call that signals do not interrupt, like a kernel or a wait for another rank.
    mutex, libc = ctypes.create_string_buffer(64), ctypes.CDLL(None)
    libc.pthread_mutex_lock(mutex)
    print("there", flush=True)
    libc.pthread_mutex_lock(mutex)

def there():
    print("there", flush=True)
    time.sleep(60)
"""


def ended_by(body, *numbers, **options):
    """Send signals to a program; return its status, its output after the first line, and its errors."""
    code = BEGIN + textwrap.dedent(body) + "\ncli.run(main, [])\n"
    # Tests that are started with nohup ignore SIGHUP.
    options.setdefault("preexec_fn", lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )
    assert process.stdout.readline() == "there\n", process.communicate(timeout=60)[1]
    for number in numbers:
        process.send_signal(number)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


@pytest.mark.parametrize(
    ("number", "status", "message"),
    [
        (signal.SIGINT, 130, "interrupted by Ctrl-C\n"),
        (signal.SIGTERM, 143, "interrupted by SIGTERM\n"),
        (signal.SIGHUP, 129, "interrupted by SIGHUP\n"),
    ],
)
def test_a_signal_is_named_and_cleanup_runs(number, status, message):
    body = """
    def main(argv):
        cli.on_failure(lambda code: print("others end with", code, flush=True))
        cli.on_interrupt(lambda: "Run the same command again.")
        atexit.register(print, "put away", flush=True)
        try:
            there()
        finally:
            print("cleaned up")
    """
    assert ended_by(body, number) == (
        status,
        f"cleaned up\nothers end with {status}\nput away\n",
        f"{message}Run the same command again.\n",
    )


# Commands that do not end by themselves, and what they print after a signal.
STUBBORN = {
    "a native call": (
        """
        signals.GRACE_S = 0.5
        cli.on_failure(lambda code: print("others end with", code, flush=True))
        block()
        """,
        "others end with 143\n",
    ),
    "a busy thread": (
        """
        threading.Thread(target=time.sleep, args=(600,)).start()
        atexit.register(print, "exit function", flush=True)
        there()
        """,
        "exit function\n",
    ),
    "a task of a pool": (
        """
        signals.GRACE_S = 0.5
        with ThreadPoolExecutor(1) as pool:
            pool.submit(block).result()
        """,
        "",
    ),
    "a hanging cleanup": ("signals.GRACE_S = 0.5; atexit.register(block); there()", "there\n"),
    # Both the terminal and mpiexec send it to the ranks.
    "the same signal twice": (
        """
        try:
            there()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.1)
            print("cleaned up")
        """,
        "cleaned up\n",
    ),
    "an exception of a library": (
        """
        try:
            there()
        except BaseException as error:
            raise ImportError("initialization failed") from error
        """,
        "",
    ),
    "exceptions that are swallowed": (
        """
        class Swallows:
            def __del__(self):
                there()

        signals.GRACE_S = 0.5
        Swallows()
        time.sleep(60)
        """,
        "",
    ),
}


@pytest.mark.parametrize("what", STUBBORN)
def test_a_signal_ends_a_command_without_a_traceback_in_spite_of(what):
    body, out = STUBBORN[what]
    command = f"def main(argv):\n{textwrap.indent(textwrap.dedent(body), '    ')}"
    assert ended_by(command, signal.SIGTERM) == (143, out, "interrupted by SIGTERM\n")


def test_a_command_ends_although_a_thread_is_busy():
    body = """
    def main(argv):
        atexit.register(print, "exit function", flush=True)
        threading.Thread(target=time.sleep, args=(600,)).start()
    """
    command = [sys.executable, "-c", BEGIN + textwrap.dedent(body) + "\ncli.run(main, [])\n"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout, run.stderr) == (0, "exit function\n", "")


def test_ignored_signals_stay_ignored():
    # As under nohup.
    body = """
    def main(argv):
        os.kill(os.getpid(), signal.SIGHUP)
        there()
    """
    ignore = lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)  # noqa: E731
    assert ended_by(body, signal.SIGHUP, signal.SIGTERM, preexec_fn=ignore)[0] == 143


def test_handlers_are_restored_after_a_command_inside_another_program():
    before = [signal.getsignal(number) for number in signals.ENDING], sys.unraisablehook, signal.set_wakeup_fd(-1)
    with pytest.raises(SystemExit):
        cli.run(lambda argv: sys.exit(3))
    after = [signal.getsignal(number) for number in signals.ENDING], sys.unraisablehook, signal.set_wakeup_fd(-1)
    assert before == after


def test_a_command_that_is_still_importing_shows_no_traceback(tmp_path):
    # The first module that it imports from outside the package waits instead.
    (tmp_path / "numpy.py").write_text("import time\nprint('there', flush=True)\ntime.sleep(60)\n")
    path = os.pathsep.join([str(tmp_path), str(Path(cli.__file__).parents[2])])
    for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        process = subprocess.Popen(
            [sys.executable, "-m", "xmc_tf.linear.train"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
        assert process.stdout.readline() == "there\n"
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
        assert process.returncode == status
        assert re.fullmatch(r"interrupted by (Ctrl-C|SIGTERM)\n", err)
