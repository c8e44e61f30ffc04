"""Run the MPI collectives of the rankers' training: mpi4py alone, without TensorFlow."""

import json
import sys

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
assert size == 2, size

total = np.zeros(5)
world.Allreduce(np.arange(5.0) + rank, total)
np.testing.assert_array_equal(total, 2 * np.arange(5.0) + 1)

# Rank r sends 1 + 2 r + t rows to rank t; each value shows source, target and number.
sent = [np.array([100 * rank + 10 * target + i for i in range(1 + 2 * rank + target)]) for target in range(size)]
sizes = np.array([len(rows) for rows in sent])
arriving = np.zeros(size, dtype=np.int64)
world.Alltoall(sizes.astype(np.int64), arriving)
assert arriving.tolist() == [1 + 2 * source + rank for source in range(size)]
received = np.zeros(arriving.sum(), dtype=sent[0].dtype)
world.Alltoallv([np.concatenate(sent), sizes], [received, arriving])
expected = [100 * source + 10 * rank + i for source in range(size) for i in range(1 + 2 * source + rank)]
assert received.tolist() == expected

assert world.bcast({"from": rank}, root=1) == {"from": 1}
assert "tensorflow" not in sys.modules
print(json.dumps({"rank": rank, "size": size, "received": received.tolist()}))
