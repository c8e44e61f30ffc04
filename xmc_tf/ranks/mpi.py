"""mpi4py, made compatible with TensorFlow, and waits that do not occupy a core, which would slow down other ranks."""

import os
import time

# While a test finds nothing, Open MPI would give up the rest of the rank's time, which is long if others want to run.
# It reads this setting when mpi4py is imported.
os.environ.setdefault("OMPI_MCA_mpi_yield_when_idle", "0")

from mpi4py import _mpiabi

# TensorFlow's library has functions of the same names as Open MPI's (of hwloc). If it is loaded later, MPI would call
# TensorFlow's, and crash at its end (``engine_operations.py`` of the distributed tests).
_mpiabi.LIBMPI_MODE = os.RTLD_NOW | os.RTLD_DEEPBIND

from mpi4py import MPI  # noqa: E402

# A rank looks for the others in a loop, and then with pauses, which grow with the time waited.
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
    """Wait for an operation that all ranks have started. Pause only if it is late: data move only during tests."""
    busy_s = _BUSY_S + size / _BYTES_PER_S
    begun = time.perf_counter()
    while not request.Test():
        if time.perf_counter() - begun > busy_s:
            time.sleep(_FIRST_PAUSE_S)
            begun = time.perf_counter()
