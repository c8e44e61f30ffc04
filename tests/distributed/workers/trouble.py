"""Goes wrong as it is told: ``trouble.py raise|exit|hang``, on rank 1."""

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
        if sys.argv[1] == "exit":
            sys.exit(3)
        time.sleep(600)
    world.Barrier()
except BaseException as error:  # noqa: BLE001
    # mpi4py finalises MPI at exit, which waits for the other ranks, and these wait for this one: an error
    # that is not turned into an abort is a deadlock.
    traceback.print_exc()
    world.Abort(error.code if isinstance(error, SystemExit) else 1)
