"""Rank 0 waits for rank 1 in a collective, which never comes: for tests that end them from outside."""

import time

from xmc_tf.collective.communicator import choose
from xmc_tf.common import cli


def main(argv):
    """Waits until somebody ends this."""
    world = choose()
    print(f"rank {world.rank} is here", flush=True)
    if world.rank == 1:
        time.sleep(600)
    world.barrier()


cli.run(main)
