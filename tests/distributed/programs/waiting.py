"""Rank 0 waits in a collective for rank 1, which never joins, for tests that end the run from outside."""

import time

from xmc_tf.common.process import cli
from xmc_tf.ranks.choosing import choose_communicator


def main(argv):
    """Wait until this process is ended."""
    world = choose_communicator()
    print(f"rank {world.rank} is here", flush=True)
    if world.rank == 1:
        time.sleep(600)
    world.barrier()


cli.run(main)
