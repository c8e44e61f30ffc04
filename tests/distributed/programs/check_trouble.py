"""Run ``xmc_tf.check`` with a fault on rank 1: none|late|hang|stop|wrong|elsewhere.

``apart-…``: the ranks believe to be on different hosts, which do not share a folder. ``slow``: with a slow link to rank
1, besides.
"""

import os
import signal
import socket
import sys
import tempfile
import time

from xmc_tf.check import __main__ as check
from xmc_tf.check import exchanges, links
from xmc_tf.common.process import cli
from xmc_tf.ranks.choosing import rank_and_size

how, arguments = sys.argv[1], sys.argv[2:]
rank = rank_and_size(os.environ)[0]
if how == "slow" or how.startswith("apart-"):
    how = how.removeprefix("apart-")
    os.environ["TMPDIR"] = tempfile.mkdtemp()
    host = f"host-{rank}"
    socket.gethostname = lambda: host
    os.environ["HOROVOD_HOSTNAME"] = "localhost"
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


def slow_exchange(world, partner, size):
    """Exchange at a tenth of the speed."""
    seconds = exchange(world, partner, size)
    return seconds * 10 if partner is not None else seconds


if rank == 1:
    if how == "late":
        time.sleep(600)
    if how in ("hang", "stop"):
        exchanges.COLLECTIVES["all-reduce"] = hanging
    if how == "wrong":
        exchanges.COLLECTIVES["all-reduce"] = wrong
    if how == "slow":
        exchange, links._exchange = links._exchange, slow_exchange
    if how == "elsewhere":
        os.chdir(tempfile.mkdtemp())
cli.run(check.main, arguments)
