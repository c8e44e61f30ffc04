"""Run all of Horovod's collectives that xmc_tf uses, with numbers that show source and target."""

import json
import os
import sys

import numpy as np

ENGINE = sys.argv[1]
if ENGINE == "mpi":
    from mpi4py import MPI  # first, so that it initialises MPI with the thread level it needs

import horovod.tensorflow as hvd
import tensorflow as tf

hvd.init()
rank, size = hvd.rank(), hvd.size()
assert size == 2, size
assert rank == int(os.environ["HOROVOD_RANK" if ENGINE == "gloo" else "OMPI_COMM_WORLD_RANK"])
assert hvd.local_rank() == rank
assert hvd.mpi_enabled() == (ENGINE == "mpi")
assert hvd.gloo_enabled() == (ENGINE == "gloo")


def rows_for(source: int, target: int) -> np.ndarray:
    """Return the 1 + 2 source + target rows that ``source`` sends to ``target``, which show their source."""
    count = 1 + 2 * source + target
    return np.float32([[source, target, i] for i in range(count)])


total = hvd.allreduce(tf.fill([1000], float(rank + 1)), op=hvd.Sum)
np.testing.assert_array_equal(total.numpy(), 3.0)
mean = hvd.allreduce(tf.constant([float(rank)]), op=hvd.Average)
np.testing.assert_array_equal(mean.numpy(), [0.5])

first, second = hvd.grouped_allreduce([tf.constant([1.0 * rank]), tf.constant([10.0 * rank])], op=hvd.Sum)
assert first.numpy().tolist() == [1.0]
assert second.numpy().tolist() == [10.0]

everything = hvd.allgather(tf.constant(rows_for(rank, 0)))
np.testing.assert_array_equal(everything.numpy(), np.concatenate([rows_for(0, 0), rows_for(1, 0)]))

from_one = hvd.broadcast(tf.constant([rank * 7, 5]), root_rank=1)
assert from_one.numpy().tolist() == [7, 5]

# Unequal splits, which the sharded label head uses, and their gradient.
send = tf.Variable(np.concatenate([rows_for(rank, target) for target in range(size)]))
splits = [len(rows_for(rank, target)) for target in range(size)]
with tf.GradientTape() as tape:
    received, received_splits = hvd.alltoall(send, splits=splits)
    weighed = tf.reduce_sum(received) * float(10 + rank)
expected = [rows_for(source, rank) for source in range(size)]
np.testing.assert_array_equal(received.numpy(), np.concatenate(expected))
assert received_splits.numpy().tolist() == [len(rows) for rows in expected]
gradient = tape.gradient(weighed, send).numpy()
np.testing.assert_array_equal(gradient[:, 0], np.repeat([10.0, 11.0], splits))

# A rank may send nothing to another one.
lonely, counts = hvd.alltoall(tf.fill([3], rank), splits=[0, 3] if rank == 0 else [3, 0])
assert lonely.numpy().tolist() == [1 - rank] * 3
assert counts.numpy().tolist() == ([0, 3] if rank == 0 else [3, 0])

part = hvd.reducescatter(tf.range(6), op=hvd.Sum)
assert part.numpy().tolist() == [[0, 2, 4], [6, 8, 10]][rank]

mpi_world = -1
if ENGINE == "mpi":
    assert MPI.COMM_WORLD.Get_rank() == rank
    mpi_world = MPI.COMM_WORLD.allreduce(1)
print(json.dumps({"rank": rank, "size": size, "mpi_world": mpi_world}))
hvd.shutdown()
