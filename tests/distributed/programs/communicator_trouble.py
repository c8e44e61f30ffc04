"""A command in which rank 1 fails while the others wait for it: raise|input|exit."""

import sys
import time

from xmc_tf.common.errors import InputError
from xmc_tf.common.process import cli
from xmc_tf.ranks.choosing import choose_communicator


def main(argv=None):
    """Wait for all ranks; rank 1 fails instead."""
    world = choose_communicator()
    world.barrier()
    if world.rank == 1:
        time.sleep(1)
        if sys.argv[1] == "raise":
            raise RuntimeError("rank 1 has had enough")
        raise InputError("rank 1 was given nonsense")
    world.barrier()


cli.run(main)
