"""Fail on rank 1: ``trouble.py raise|hang``."""

import sys
import time
import traceback

from mpi4py import MPI

world = MPI.COMM_WORLD
print(f"rank {world.Get_rank()} is here", flush=True)
try:
    if world.Get_rank() == 1:
        if sys.argv[1] == "raise":
            raise RuntimeError("rank 1 has had enough")
        time.sleep(600)
    world.Barrier()
except BaseException:  # noqa: BLE001
    # At exit, mpi4py waits for the other ranks, which wait for this one: without an abort, an error is a deadlock.
    traceback.print_exc()
    world.Abort(1)
