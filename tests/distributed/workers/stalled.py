"""Rank 1 takes another way through the program than the others and leaves out a collective.

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
            # The launcher starts this file as a script of a user's, which does not know the tests' folder.
            sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
            from tests.ranks.attacks import attack

            for peer in settings._watch._peers:
                held.enter_context(attack(peer.endpoints[world.host]))
        time.sleep(600)
world.allgather(world.rank)
