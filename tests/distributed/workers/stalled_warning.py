"""Rank 1 stops until somebody lets it go on; rank 0 is to say so, and then both go on."""

import json
import logging
import os
import signal

from xmc_tf.collective.communicator import choose
from xmc_tf.collective.stalls.watch import StallWatch

logging.basicConfig()
world = choose()
watch = StallWatch(world, timeout=None, warn_after=2.0)
watch.start()
world.barrier()
if world.rank == 1:
    os.kill(os.getpid(), signal.SIGSTOP)
print(json.dumps(world.allgather(world.rank)), flush=True)
