"""Rank 1 takes another way through the program than the others and leaves out a collective."""

import time

from xmc_tf.collective.communicator import choose

world = choose()
world.barrier()
if world.rank == 1:
    time.sleep(600)
world.allgather(world.rank)
