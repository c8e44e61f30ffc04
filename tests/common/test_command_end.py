"""A command ends as soon as its work is done: exit functions run, threads are not waited for."""

import subprocess
import sys

import pytest

from xmc_tf.common.process.signals import GRACE_S

COMMAND = """
import atexit, os, signal, sys, threading, time
from xmc_tf.common.process import cli

def main(argv):
    atexit.register(print, "exit function")
    threading.Thread(target=time.sleep, args=(600,)).start()
    print("result")
    if "interrupted" in sys.argv:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(600)

cli.run(main)
"""


@pytest.mark.parametrize(("arguments", "status"), [([], 0), (["interrupted"], 143)])
def test_a_command_ends_although_a_thread_is_busy(arguments, status):
    run = subprocess.run(
        [sys.executable, "-c", COMMAND, *arguments], capture_output=True, text=True, timeout=GRACE_S + 60, check=False
    )
    assert run.returncode == status, run.stderr
    assert run.stdout.splitlines() == ["result", "exit function"]
