"""Rank 1 stops until the test continues it; rank 0 logs the stall, and then both continue."""

import json
import logging
import os
import signal

from xmc_tf.ranks.choosing import choose_communicator
from xmc_tf.ranks.stalls.watch import StallWatch

logging.basicConfig()
world = choose_communicator()
watch = StallWatch(world, timeout=None, warn_after=2.0)
watch.start()
world.barrier()
if world.rank == 1:
    os.kill(os.getpid(), signal.SIGSTOP)
print(json.dumps(world.allgather(world.rank)), flush=True)
