"""Call all methods of the communicator with values that show source and target, and check the results."""

import json
import logging
import sys

import numpy as np
import pytest

from xmc_tf.common.errors import InputError
from xmc_tf.ranks import communicator as communicators
from xmc_tf.ranks.choosing import choose_communicator

logging.basicConfig(level=logging.INFO)
world = choose_communicator()
rank, size = world.rank, world.size
ranks = range(size)
assert choose_communicator() is world
assert 0 <= world.local_rank < size
assert world.allgather(world.host) == [world.host] * size


def objects():
    """Check values of any type and length, from and to each rank."""
    world.barrier()
    for root in ranks:
        value = {"from": root, "data": b"x" * 5000 * root}
        assert world.broadcast(value if rank == root else None, root) == value
    assert world.gather((rank, "a" * rank)) == ([(r, "a" * r) for r in ranks] if rank == 0 else [])
    assert world.allgather([rank] * rank) == [[r] * r for r in ranks]
    assert world.alltoall([(rank, r, "x" * (rank + r)) for r in ranks]) == [(r, rank, "x" * (rank + r)) for r in ranks]


def rows(source, target, dtype, width=3):
    """Return the rows that ``source`` sends to ``target``, which show source, target and number; maybe none."""
    count = (3 * source + 2 * target) % 5
    return np.array([[source, target, i][:width] for i in range(count)], dtype=dtype).reshape(count, width)


def arrays():
    """Check rows and sums of each type."""
    for dtype in (np.float32, np.float64, np.float16, np.int64, np.int8, np.uint64, bool, "S3", "datetime64[s]"):
        sent = [rows(rank, r, np.int64).astype(dtype) for r in ranks]
        received, counts = world.alltoall_array(np.concatenate(sent), [len(part) for part in sent])
        expected = [rows(r, rank, np.int64).astype(dtype) for r in ranks]
        np.testing.assert_array_equal(received, np.concatenate(expected))
        assert received.dtype == dtype
        assert counts.tolist() == [len(part) for part in expected]
        gathered = world.allgather_array(rows(rank, 0, np.int64).astype(dtype))
        np.testing.assert_array_equal(gathered, np.concatenate([rows(r, 0, np.int64).astype(dtype) for r in ranks]))
        root = size - 1
        whole = np.arange(24).reshape(2, 3, 4).astype(dtype)
        np.testing.assert_array_equal(world.broadcast_array(whole if rank == root else None, root), whole)
    for dtype in (np.float32, np.float64, np.float16, np.int64, np.int32, np.int16, np.uint8):
        mine = (np.arange(6).reshape(2, 3) * (rank + 1)).astype(dtype)
        for op, together in (("sum", np.add), ("max", np.maximum), ("min", np.minimum)):
            expected = together.reduce([(np.arange(6).reshape(2, 3) * (r + 1)).astype(dtype) for r in ranks])
            got = world.allreduce_array(mine, op)
            np.testing.assert_array_equal(got, expected.astype(dtype), err_msg=f"{dtype} {op}")
            assert got.dtype == dtype
    assert world.allreduce_array(np.int64(2)).shape == ()
    assert world.allreduce_array(np.int64(2)) == 2 * size
    assert world.allreduce_array(np.zeros((0, 4))).shape == (0, 4)
    nothing, counts = world.alltoall_array(np.zeros((0, 7), np.float32), [0] * size)
    assert nothing.shape == (0, 7)
    assert counts.tolist() == [0] * size
    assert world.allgather_array(np.zeros((0, 7))).shape == (0, 7)
    assert world.broadcast_array(np.zeros((0, 7)) if rank == 0 else None).shape == (0, 7)
    # Views with gaps and in Fortran order are sent by value.
    matrix = np.arange(4 * size * 6).reshape(4 * size, 6)
    received, _ = world.alltoall_array(matrix[::2, ::-1], [2] * size)
    np.testing.assert_array_equal(received, np.tile(matrix[::2, ::-1][2 * rank : 2 * rank + 2], (size, 1)))


def mistakes():
    """Check that ranks can continue after an error on all of them."""
    with pytest.raises(InputError, match="add up to the 3 rows"):
        world.alltoall_array(np.zeros((3, 2)), [1] + [0] * (size - 1))
    with pytest.raises(InputError, match="alltoall: wrong number of values"):
        world.alltoall([1] * (size + 1))
    with pytest.raises(InputError, match="cannot be sent"):
        world.allreduce_array(np.array([None]))


def random_lengths():
    """Check messages of very different random lengths, in several rounds."""
    random = np.random.default_rng(5)
    counts = random.integers(0, 9, (size, size))
    data = [random.standard_normal((counts[r].sum(), 3)) for r in ranks]
    received, arrived = world.alltoall_array(data[rank], counts[rank])
    starts = np.cumsum(counts, axis=1) - counts
    pieces = [data[r][starts[r, rank] : starts[r, rank] + counts[r, rank]] for r in ranks]
    np.testing.assert_array_equal(received, np.concatenate(pieces))
    assert arrived.tolist() == counts[:, rank].tolist()


for limit in (1 << 30, 1000):
    communicators.CHUNK_BYTES = limit
    objects()
    arrays()
for limit in (1 << 30, 600, 7 * size):
    communicators.CHUNK_BYTES = limit
    random_lengths()
mistakes()
print(json.dumps({"rank": rank, "size": size, "kind": type(world).__name__, "tensorflow": "tensorflow" in sys.modules}))
