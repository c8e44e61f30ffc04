"""A program in which rank 1 skips a collective: ``stalled.py [attacked|warned|stopped]``.

With ``attacked``, it first sends garbage to the stall watch of rank 0, and holds half-open connections to it.
With ``warned``, it stops until the test continues it; rank 0 logs the stall, and then both continue. With ``stopped``,
it stays stopped.
"""

import contextlib
import json
import logging
import os
import signal
import sys
import time
from pathlib import Path

from xmc_tf.ranks.choosing import choose_communicator
from xmc_tf.ranks.stalls import watch

world = choose_communicator()
if "warned" in sys.argv:
    logging.basicConfig()
    watch.StallWatch(world, timeout=None, warn_after=2.0).start()
world.barrier()
if world.rank == 1 and {"warned", "stopped"} & {*sys.argv}:
    os.kill(os.getpid(), signal.SIGSTOP)
elif world.rank == 1:
    with contextlib.ExitStack() as held:
        if "attacked" in sys.argv:
            # Started by the launcher as a script, which cannot import the tests.
            sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
            from tests.ranks.attacks import attack

            held.enter_context(attack(watch._watch.address))
        time.sleep(600)
ranks = world.allgather(world.rank)
print(json.dumps(ranks), flush=True)
