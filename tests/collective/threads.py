"""A world of ranks that are threads of one process: what needs several ranks, tested without starting any."""

import threading

from xmc_tf.common.wire.format import pack, unpack


class ThreadCommunicator:
    """One rank of a ``ThreadWorld``, with what a ``Communicator`` has for objects."""

    def __init__(self, world, rank):
        self.world, self.rank, self.size, self.local_rank, self.host = world, rank, world.size, rank, f"host{rank}"

    def allgather(self, value):
        self.world.board[self.rank] = pack(value)  # what real ranks cannot send cannot be sent here either
        self.world.meet.wait()
        everybodys = [unpack(data) for data in self.world.board]
        self.world.meet.wait()
        return everybodys

    def allreduce_array(self, array):
        return sum(self.allgather(array))

    def barrier(self):
        self.allgather(None)

    def broadcast(self, value, root=0):
        return self.allgather(value)[root]

    def gather(self, value, root=0):
        everybodys = self.allgather(value)
        return everybodys if self.rank == root else []

    def scatter(self, values, root=0):
        return self.allgather(values)[root][self.rank]

    def alltoall(self, values):
        return [theirs[self.rank] for theirs in self.allgather(values)]


class ThreadWorld:
    """``size`` ranks that meet at a board."""

    def __init__(self, size, timeout=60):
        self.size, self.board, self.meet = size, [None] * size, threading.Barrier(size, timeout=timeout)


def on_ranks(size, work):
    """What ``work(communicator)`` gives on each of ``size`` ranks, errors included, by rank."""
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


def all_well(results):
    """Return the results, when none of them is an error."""
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results
