"""mpi4py, as this package uses it: loaded beside TensorFlow, and waiting without keeping a core busy.

MPI's own calls wait in a loop. With more ranks or other programs than cores, that delays everybody: the ranks that are
waited for, too.
"""

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

# A wait first looks in a loop, then with pauses, which grow with the time waited.
_BUSY_S, _FIRST_PAUSE_S, _LONGEST_PAUSE_S = 300e-6, 20e-6, 1e-3


def finish(request: MPI.Request) -> None:
    """Wait for the end of a non-blocking operation.

    Args:
        request: the operation.
    """
    begun = time.perf_counter()
    while not request.Test():
        waited = time.perf_counter() - begun
        if waited > _BUSY_S:
            time.sleep(min(max(_FIRST_PAUSE_S, waited / 20), _LONGEST_PAUSE_S))
