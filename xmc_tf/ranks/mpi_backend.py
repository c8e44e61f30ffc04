import atexit
import sys

import numpy as np

from xmc_tf.ranks.communicator import Communicator, Operation
from xmc_tf.ranks.mpi import MPI, finish, finish_sending
from xmc_tf.ranks.stalls.marks import MARKS

_OPERATIONS = {"sum": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN}


class MpiCommunicator(Communicator):
    """A communicator over MPI that uses mpi4py and does not need TensorFlow."""

    uses_mpi4py = True

    def __init__(self) -> None:
        # A duplicate, so that messages are never mixed up with those of Horovod or of the user's code.
        self._world = MPI.COMM_WORLD.Dup()
        on_host = MPI.COMM_WORLD.Split_type(MPI.COMM_TYPE_SHARED)
        super().__init__(self._world.Get_rank(), self._world.Get_size(), on_host.Get_rank())
        on_host.Free()
        atexit.register(_finalize)

    def __str__(self) -> str:
        return f"mpi4py over {MPI.get_vendor()[0]} {'.'.join(map(str, MPI.get_vendor()[1]))}"

    @MARKS.as_wait("xmc_tf/communicator/barrier")
    def barrier(self) -> None:
        finish(self._world.Ibarrier())

    @MARKS.as_wait("xmc_tf/communicator/all-to-all")
    def _alltoall(self, piece: np.ndarray, counts: np.ndarray) -> np.ndarray:
        coming = np.empty(self.size, np.int64)
        finish(self._world.Ialltoall(counts.astype(np.int64), coming))
        received = np.empty(int(coming.sum()), np.uint8)
        finish_sending(self._world.Ialltoallv([piece, counts], [received, coming]), piece.nbytes)
        return received

    @MARKS.as_wait("xmc_tf/communicator/all-gather")
    def _allgather(self, piece: np.ndarray) -> np.ndarray:
        counts = np.empty(self.size, np.int64)
        finish(self._world.Iallgather(np.array([len(piece)], np.int64), counts))
        received = np.empty(int(counts.sum()), np.uint8)
        finish_sending(self._world.Iallgatherv(piece, [received, counts]), piece.nbytes)
        return received

    @MARKS.as_wait("xmc_tf/communicator/broadcast")
    def _broadcast(self, piece: np.ndarray, root: int) -> np.ndarray:
        piece = piece.copy()
        finish(self._world.Ibarrier())
        finish_sending(self._world.Ibcast(piece, root), piece.nbytes)
        return piece

    @MARKS.as_wait("xmc_tf/communicator/all-reduce")
    def _allreduce(self, piece: np.ndarray, op: Operation) -> np.ndarray:
        result = np.empty_like(piece)
        finish(self._world.Ibarrier())
        finish_sending(self._world.Iallreduce(piece, result, _OPERATIONS[op]), piece.nbytes)
        return result

    def abort(self, code: int = 1) -> None:
        """End all ranks. ``mpiexec`` exits with ``code``."""
        sys.stdout.flush()
        sys.stderr.flush()
        MPI.COMM_WORLD.Abort(code)


def _finalize() -> None:
    """Finalize MPI: commands exit before mpi4py's own hook would, and ``mpiexec`` would report that as a crash."""
    horovod = sys.modules.get("horovod.tensorflow")
    if horovod is not None:
        horovod.shutdown()  # uses MPI, and may have initialized it
    if MPI.Is_initialized() and not MPI.Is_finalized():
        MPI.Finalize()
