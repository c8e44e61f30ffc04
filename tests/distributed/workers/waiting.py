"""Rank 0 waits for rank 1 in a collective, which never comes: for tests that end them from outside."""

import time

from xmc_tf.common.process import cli
from xmc_tf.ranks.choosing import choose_communicator


def main(argv):
    """Wait until somebody ends this."""
    world = choose_communicator()
    print(f"rank {world.rank} is here", flush=True)
    if world.rank == 1:
        time.sleep(600)
    world.barrier()


cli.run(main)
