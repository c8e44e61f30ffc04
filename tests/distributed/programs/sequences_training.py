"""Train sequence models, and print the results: ``sequences_training.py DATA FOLDER STEPS FORM …``."""

import json
import os
import sys

if "OMPI_COMM_WORLD_RANK" in os.environ:
    from mpi4py import MPI  # noqa: F401  first, so that it initialises MPI with the thread level it needs

from tests.sequences.forms import run_forms
from xmc_tf.ranks.choosing import choose_communicator

data, folder, steps, *names = sys.argv[1:]
print(json.dumps(run_forms(choose_communicator(), data, folder, int(steps), names)))
