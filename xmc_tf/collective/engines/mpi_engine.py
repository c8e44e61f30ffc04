import logging
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from xmc_tf.collective.engines.aligned import aligned_array
from xmc_tf.ranks.mpi import MPI, finish, finish_sending
from xmc_tf.ranks.stalls.marks import MARKS

log = logging.getLogger(__name__)

# MPI counts in 32 bits. All-to-all and all-gather count rows, and sums are made in chunks of this many numbers. Tests
# lower it.
CHUNK = 1 << 28
# Smaller tensors are summed together in one message.
_SMALL_BYTES = 1 << 16


class MpiEngine:
    """The collective operations of MPI. MPI matches the ranks' calls by their order. TensorFlow runs the stateful
    ``tf.numpy_function`` in program order. Each kind of operation has its own communicator: ranks in different
    operations then wait for each other, which is reported as a stall, instead of mixing up their data.
    """

    has_32_bit_sizes = False  # an exchange counts rows, so that the number of its numbers is not limited to 32 bits

    def __init__(self) -> None:
        self._exchanges, self._sums, self._gathers = (MPI.COMM_WORLD.Dup() for _ in range(3))
        self.rank, self.size = MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()
        self._rows: dict[int, MPI.Datatype] = {}
        if self.rank == 0 and tf.config.list_physical_devices("GPU"):
            log.warning(
                "training steps exchange through main memory (%s); GPUs exchange faster through Horovod with NCCL: use "
                "horovodrun, or mpiexec -x XMC_TF_COMMUNICATOR=horovod, where Horovod was compiled with NCCL",
                self,
            )

    def __str__(self) -> str:
        return f"mpi4py over {MPI.get_vendor()[0]} {'.'.join(map(str, MPI.get_vendor()[1]))}"

    def alltoall(self, tensor: tf.Tensor, splits: tf.Tensor, name: str) -> tuple[tf.Tensor, tf.Tensor]:
        @MARKS.as_wait(name)
        def exchange(rows: np.ndarray, splits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            received = np.empty_like(splits)
            finish(self._exchanges.Ialltoall(splits, received))
            out = aligned_array((int(received.sum(dtype=np.int64)), *rows.shape[1:]), rows.dtype)
            unit = self._row(rows)
            finish_sending(self._exchanges.Ialltoallv([rows, splits, unit], [out, received, unit]), rows.nbytes)
            return out, received

        moved, received = tf.numpy_function(exchange, [tensor, splits], [tensor.dtype, tf.int32])
        received.set_shape([self.size])
        return moved, received

    def sums(self, tensors: Sequence[tf.Tensor], name: str) -> Sequence[tf.Tensor]:
        @MARKS.as_wait(name)
        def summed(*arrays: np.ndarray) -> list[np.ndarray]:
            finish(self._sums.Ibarrier())
            small = [array.reshape(-1) for array in arrays if array.nbytes < _SMALL_BYTES]
            together = self._sum(np.concatenate(small)) if small else np.zeros(0)
            results, at = [], 0
            for array in arrays:
                if array.nbytes < _SMALL_BYTES:
                    results.append(together[at : at + array.size].reshape(array.shape))
                    at += array.size
                else:
                    results.append(self._sum(array.reshape(-1)).reshape(array.shape))
            return results

        # Outside of graphs, a single result comes without a list.
        return tf.nest.flatten(tf.numpy_function(summed, list(tensors), [tensor.dtype for tensor in tensors]))

    def allgather(self, tensor: tf.Tensor, name: str) -> tf.Tensor:
        @MARKS.as_wait(name)
        def gathered(rows: np.ndarray) -> np.ndarray:
            counts = np.empty(self.size, np.int32)
            finish(self._gathers.Iallgather(np.array([len(rows)], np.int32), counts))
            out = aligned_array((int(counts.sum(dtype=np.int64)), *rows.shape[1:]), rows.dtype)
            unit = self._row(rows)
            finish_sending(self._gathers.Iallgatherv([rows, len(rows), unit], [out, counts, unit]), rows.nbytes)
            return out

        return tf.numpy_function(gathered, [tensor], tensor.dtype)

    def _sum(self, flat: np.ndarray) -> np.ndarray:
        out = aligned_array(flat.shape, flat.dtype)
        for at in range(0, len(flat), CHUNK):
            finish_sending(self._sums.Iallreduce(flat[at : at + CHUNK], out[at : at + CHUNK]), out.nbytes)
        return out

    def _row(self, rows: np.ndarray) -> MPI.Datatype:
        """Return an MPI type for a whole row of bytes, because MPI counts in 32 bits and has no half precision."""
        size = rows.dtype.itemsize * int(np.prod(rows.shape[1:], dtype=np.int64))
        if size not in self._rows:
            self._rows[size] = MPI.BYTE.Create_contiguous(size).Commit()
        return self._rows[size]
