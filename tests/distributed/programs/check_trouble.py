"""Run ``xmc_tf.check`` with a fault on rank 1: none|late|hang|wrong.

``hang``: rank 2 stops itself. ``wrong``: rank 1 is also in another folder. With ``hang`` and ``slow``, the ranks
believe to be on different hosts. ``slow``: every exchange is timed as one at 1,000 MB/s, those with rank 1 at 100 MB/s.
"""

import os
import signal
import socket
import sys
import tempfile
import time

from tests.distributed.rank import RANK_VARIABLES
from xmc_tf.check import __main__ as check
from xmc_tf.check import exchanges, links
from xmc_tf.common.process import cli

how, arguments = sys.argv[1], sys.argv[2:]
rank = int(next(os.environ[name] for name in RANK_VARIABLES if name in os.environ))
if how in ("slow", "hang"):
    host = f"host-{rank}"
    socket.gethostname = lambda: host
    os.environ["HOROVOD_HOSTNAME"] = "localhost"
right = exchanges.COLLECTIVES["all-reduce"]


def hanging(world, count):
    """Hang, so that the other ranks wait."""
    if rank == 2:
        os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(600)


def wrong(world, count):
    """Take part, but get a wrong result."""
    trial = right(world, count)
    return trial._replace(call=lambda: trial.call() + 1)


def slow_exchange(world, partner, size):
    """Exchange, and return the seconds of a certain speed, which a busy machine does not change."""
    exchange(world, partner, size)
    return size / (1e8 if 1 in (world.rank, partner) else 1e9)


if rank == 1:
    if how == "late":
        time.sleep(600)
    if how == "wrong":
        exchanges.COLLECTIVES["all-reduce"] = wrong
        os.chdir(tempfile.mkdtemp())
if how == "hang" and rank in (1, 2):
    exchanges.COLLECTIVES["all-reduce"] = hanging
if how == "slow":
    exchange, links._exchange = links._exchange, slow_exchange
cli.run(check.main, arguments)
