"""Run all operations of this process's engine, in a graph and outside, with numbers that show source and target."""

import json
import logging
import os
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

from xmc_tf.collective.engines import operations
from xmc_tf.collective.engines.operations import engine, start_engine
from xmc_tf.ranks import this_host
from xmc_tf.ranks.choosing import choose_communicator

logging.basicConfig(level=logging.INFO)
if "gpus" in sys.argv:  # as if each host had one, and Horovod NCCL
    this_host.DEVICES = Path(sys.argv[2])
    (this_host.DEVICES / "nvidia0").touch()
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    from horovod.common.basics import HorovodBasics

    HorovodBasics.nccl_built = lambda _: 1
world = choose_communicator()
start_engine(world)
rank, size = world.rank, world.size
if "mpi" in type(engine()).__module__:
    from xmc_tf.collective.engines import mpi_engine

    mpi_engine.CHUNK = 1000  # sums and broadcasts of more numbers take several messages


def rows_for(source, target, dtype):
    """Return the rows that ``source`` sends to ``target``: none, or some that show both."""
    count = (3 * source + target) % 4
    return tf.cast([[source, target, number] for number in range(count)] or np.zeros((0, 3)), dtype)


def check(call):
    for dtype in (tf.float32, tf.bfloat16, tf.float16, tf.int64, tf.uint8, tf.bool):
        rows = [rows_for(rank, target, dtype) for target in range(size)]
        splits = tf.constant([len(some) for some in rows])
        moved, received = call(lambda *given: operations.alltoall(*given, name="all"), tf.concat(rows, 0), splits)
        wanted = [rows_for(source, rank, dtype) for source in range(size)]
        assert moved.dtype == dtype
        np.testing.assert_array_equal(moved, tf.concat(wanted, 0))
        assert received.numpy().tolist() == [len(some) for some in wanted]
        gathered = call(lambda given: operations.allgather(given, "gathered"), rows[0])
        np.testing.assert_array_equal(gathered, tf.concat([rows_for(source, 0, dtype) for source in range(size)], 0))
    flat, _ = call(lambda given: operations.alltoall(given, [2] * size, "flat"), tf.range(2 * size) + 100 * rank)
    np.testing.assert_array_equal(flat, [100 * source + 2 * rank + one for source in range(size) for one in (0, 1)])

    # Large and small tensors of several types, in one call.
    given = [tf.fill([5000, 7], 1.0 + rank), tf.constant(rank), tf.cast([0.5 * rank], tf.bfloat16), tf.ones([2, 2])]
    ranks = sum(range(size))
    sums = call(lambda *tensors: operations.grouped_sum(tensors, "sums"), *given)
    for total, number, one in zip(sums, (size + ranks, ranks, 0.5 * ranks, size), given, strict=True):
        assert total.dtype == one.dtype
        np.testing.assert_array_equal(tf.cast(total, tf.float32), np.full(one.shape, number, np.float32))
    assert call(lambda one: operations.allreduce_sum(one, "sum"), tf.constant([1.5, rank])).numpy()[1] == ranks
    # Sums of fractions are the same on all ranks, to the last bit.
    fractions = tf.random.stateless_normal([3001], [rank, 7])
    bits = call(lambda one: operations.allreduce_sum(one, "bits"), fractions).numpy().tobytes()
    assert len(set(world.allgather(bits))) == 1


check(lambda call, *tensors: call(*tensors))
check(lambda call, *tensors: tf.function(call)(*tensors))
variables = [tf.Variable(tf.cast(tf.fill(shape, 1 + rank), dtype)) for shape, dtype in
             (([40, 100], tf.float32), ([], tf.int64), ([3], tf.bfloat16))]  # fmt: skip
operations.broadcast_variables(variables, root=size - 1)
assert all(bool(tf.reduce_all(tf.equal(one, tf.cast(size, one.dtype)))) for one in variables)
packages = [name for name in ("horovod", "mpi4py") if name in sys.modules]
print(json.dumps({"rank": rank, "engine": str(engine()), "packages": packages}), flush=True)
