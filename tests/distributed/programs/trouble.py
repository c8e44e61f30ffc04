"""A command in which rank 1 does not join the collective that the others wait in: ``trouble.py raise|input|hang``.

An error must become an abort: at exit, mpi4py waits for the other ranks, and these wait for the one that failed.
"""

import sys
import time

from xmc_tf.common.errors import InputError
from xmc_tf.common.process import cli
from xmc_tf.ranks.choosing import choose_communicator


def main(argv):
    """Wait for all ranks; rank 1 fails or hangs instead."""
    world = choose_communicator()
    world.barrier()
    print(f"rank {world.rank} is here", flush=True)
    if world.rank == 1:
        time.sleep(600 if argv == ["hang"] else 1)
        if argv == ["raise"]:
            raise RuntimeError("rank 1 has had enough")
        raise InputError("rank 1 was given nonsense")
    world.barrier()


cli.run(main, sys.argv[1:])
