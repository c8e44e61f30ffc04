"""PECOS's own distributed training of XR-Linear, as it is but for two things; needs libpecos and mpi4py.

* It splits a list of arrays of different lengths by ``numpy.array_split``, which NumPy refuses from version 1.24 on.
* A rank that fails leaves the others waiting; here it ends them.
"""

import runpy
import sys
import traceback
from typing import Any

import numpy as np
from mpi4py import MPI

_split = np.array_split


def _split_lists_too(things: Any, *arguments: Any, **more: Any) -> list[Any]:
    if isinstance(things, list):
        several = np.empty(len(things), object)
        for i, one in enumerate(things):
            several[i] = one
        things = several
    return _split(things, *arguments, **more)


np.array_split = _split_lists_too
try:
    sys.argv[0] = "train"
    runpy.run_module("pecos.distributed.xmc.xlinear.train", run_name="__main__", alter_sys=True)
except Exception:  # noqa: BLE001
    traceback.print_exc()
    MPI.COMM_WORLD.Abort(1)
