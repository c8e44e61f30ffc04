"""Run ``xmc_tf.check`` with a fault on rank 1: none|late|hang|stop|wrong|elsewhere."""

import os
import signal
import sys
import tempfile
import time

from xmc_tf.check import __main__ as check
from xmc_tf.check import exchanges
from xmc_tf.common.process import cli
from xmc_tf.ranks.choosing import rank_and_size

how, arguments = sys.argv[1], sys.argv[2:]
right = exchanges.COLLECTIVES["all-reduce"]


def hanging(world, count):
    """Hang, so that the other ranks wait."""
    if how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(600)


def wrong(world, count):
    """Take part, but get a wrong result."""
    trial = right(world, count)
    return trial._replace(call=lambda: trial.call() + 1)


if rank_and_size(os.environ)[0] == 1:
    if how == "late":
        time.sleep(600)
    if how in ("hang", "stop"):
        exchanges.COLLECTIVES["all-reduce"] = hanging
    if how == "wrong":
        exchanges.COLLECTIVES["all-reduce"] = wrong
    if how == "elsewhere":
        os.chdir(tempfile.mkdtemp())
cli.run(check.main, arguments)
