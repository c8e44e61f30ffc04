import os
import sys

import numpy as np

from xmc_tf.common.process.quiet import muted_stderr
from xmc_tf.ranks.communicator import Communicator, Operation
from xmc_tf.ranks.stalls.marks import MARKS

with muted_stderr():
    import horovod.tensorflow as hvd
    import tensorflow as tf


class HorovodCommunicator(Communicator):
    """A communicator over Horovod that uses only main memory. Its operation names differ from those of training."""

    def __init__(self) -> None:
        hvd.init()
        super().__init__(hvd.rank(), hvd.size(), hvd.local_rank())

    def __str__(self) -> str:
        return f"Horovod over {'MPI' if hvd.mpi_enabled() else 'Gloo'}"

    @MARKS.as_wait("xmc_tf/communicator/all-to-all")
    def _alltoall(self, piece: np.ndarray, counts: np.ndarray) -> np.ndarray:
        with tf.device("/CPU:0"):
            received, _ = hvd.alltoall(
                tf.constant(piece), splits=tf.constant(counts, tf.int32), name="xmc_tf/communicator/alltoall"
            )
        return received.numpy()

    @MARKS.as_wait("xmc_tf/communicator/all-gather")
    def _allgather(self, piece: np.ndarray) -> np.ndarray:
        with tf.device("/CPU:0"):
            return hvd.allgather(tf.constant(piece), name="xmc_tf/communicator/allgather").numpy()

    @MARKS.as_wait("xmc_tf/communicator/broadcast")
    def _broadcast(self, piece: np.ndarray, root: int) -> np.ndarray:
        with tf.device("/CPU:0"):
            return hvd.broadcast(tf.constant(piece), root_rank=root, name="xmc_tf/communicator/broadcast").numpy()

    @MARKS.as_wait("xmc_tf/communicator/all-reduce")
    def _allreduce(self, piece: np.ndarray, op: Operation) -> np.ndarray:
        operation = {"sum": hvd.Sum, "max": hvd.Max, "min": hvd.Min}[op]
        with tf.device("/CPU:0"):
            return hvd.allreduce(tf.constant(piece), op=operation, name=f"xmc_tf/communicator/{op}").numpy()

    def abort(self, code: int = 1) -> None:
        """End this process immediately. The launcher then ends the other ranks."""
        sys.stdout.flush()
        sys.stderr.flush()
        # sys.exit would wait for Horovod's shutdown message, which other ranks may never answer.
        os._exit(code)
