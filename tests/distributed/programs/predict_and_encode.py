"""Run the predict and encode commands on all ranks: ``predict_and_encode.py MODEL TEXTS LABELS OUT``."""

import os
import sys

if "OMPI_COMM_WORLD_RANK" in os.environ:
    from mpi4py import MPI  # noqa: F401  first, so that it initialises MPI with the thread level it needs

from xmc_tf import encode, predict

model, texts, labels, out = sys.argv[1:]
predict.main(["-m", model, "-t", texts, "-y", labels, "-o", f"{out}/P.npz", "-n", "1"])
encode.main(["-m", model, "-t", texts, "-o", out])
