"""mpi4py, made compatible with TensorFlow, and functions that wait for MPI but leave the core to other ranks."""

import os
import time

# If ``Test()`` finds nothing, Open MPI may yield the core, and on a busy host it waits long to get the core back.
# It reads this setting when mpi4py is imported.
os.environ.setdefault("OMPI_MCA_mpi_yield_when_idle", "0")

from mpi4py import _mpiabi

# TensorFlow's library and Open MPI both contain hwloc functions with the same names. Without this mode, MPI could call
# TensorFlow's, and crash when it ends (``engine_operations.py`` of the distributed tests).
_mpiabi.LIBMPI_MODE = os.RTLD_NOW | os.RTLD_DEEPBIND

from mpi4py import MPI  # noqa: E402

# A rank first calls ``Test()`` in a busy loop, and then with pauses that grow with the time waited.
_BUSY_S, _FIRST_PAUSE_S, _LONGEST_PAUSE_S = 300e-6, 20e-6, 1e-3
_BYTES_PER_S = 1e9  # between ranks of a machine; they reach about twice as many


def finish(request: MPI.Request) -> None:
    """Wait for a small non-blocking operation that other ranks may not have started yet."""
    begun = time.perf_counter()
    while not request.Test():
        waited = time.perf_counter() - begun
        if waited > _BUSY_S:
            time.sleep(min(max(_FIRST_PAUSE_S, waited / 20), _LONGEST_PAUSE_S))


def finish_sending(request: MPI.Request, size: int) -> None:
    """Wait for an operation that all ranks have started. Pause only if it is late: data move only during ``Test()``."""
    busy_s = _BUSY_S + size / _BYTES_PER_S
    begun = time.perf_counter()
    while not request.Test():
        if time.perf_counter() - begun > busy_s:
            time.sleep(_FIRST_PAUSE_S)
            begun = time.perf_counter()
