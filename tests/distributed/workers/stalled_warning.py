"""Rank 1 stops until somebody lets it go on; rank 0 is to say so, and then both go on."""

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
