"""Ranks that are threads of one process, to test code for several ranks without starting processes."""

import threading

import numpy as np

from xmc_tf.common.serialization import pack, unpack


class ThreadCommunicator:
    """A rank of a ``ThreadWorld``, with the methods of a ``Communicator`` for objects."""

    def __init__(self, world, rank):
        self.world, self.rank, self.size, self.local_rank, self.host = world, rank, world.size, rank, f"host{rank}"

    def allgather(self, value):
        self.world.board[self.rank] = pack(value)  # refuses what real ranks cannot send
        self.world.meet.wait()
        gathered = [unpack(data) for data in self.world.board]
        self.world.meet.wait()
        return gathered

    def allreduce_array(self, array, op="sum"):
        arrays = self.allgather(array)
        return np.max(arrays, axis=0) if op == "max" else sum(arrays)

    def barrier(self):
        self.allgather(None)

    def broadcast(self, value, root=0):
        return self.allgather(value)[root]

    def gather(self, value):
        gathered = self.allgather(value)
        return gathered if self.rank == 0 else []

    def alltoall(self, values):
        return [theirs[self.rank] for theirs in self.allgather(values)]


class ThreadWorld:
    """The state that ``size`` ranks share."""

    def __init__(self, size, timeout=240):
        self.size, self.board, self.meet = size, [None] * size, threading.Barrier(size, timeout=timeout)


def on_ranks(size, work):
    """Return the results, or errors, of ``work(communicator)`` on each of ``size`` ranks."""
    world, results = ThreadWorld(size), [None] * size

    def one(rank):
        try:
            results[rank] = work(ThreadCommunicator(world, rank))
        except threading.BrokenBarrierError as error:
            results[rank] = error
        except Exception as error:  # noqa: BLE001
            results[rank] = error

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def results_of(results):
    """Return the results, or raise the first error among them."""
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results
