"""A program in which rank 1 skips a collective.

With ``attacked``, it first sends garbage to the stall watches of all ranks, and holds half-open connections to them.
"""

import contextlib
import sys
import time
from pathlib import Path

from xmc_tf.ranks.choosing import choose_communicator
from xmc_tf.ranks.stalls import settings

world = choose_communicator()
world.barrier()
if world.rank == 1:
    with contextlib.ExitStack() as held:
        if "attacked" in sys.argv:
            # Started by the launcher as a script, which cannot import the tests.
            sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
            from tests.ranks.attacks import attack

            for endpoints in settings._watch._endpoints:
                held.enter_context(attack(endpoints.addresses[world.host]))
        time.sleep(600)
world.allgather(world.rank)
