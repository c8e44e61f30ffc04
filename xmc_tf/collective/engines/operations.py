from collections.abc import Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, Union

import tensorflow as tf

from xmc_tf.collective.engines import operations
from xmc_tf.collective.engines.graph_order import in_order
from xmc_tf.common.errors import InputError
from xmc_tf.ranks.choosing import choose_communicator
from xmc_tf.ranks.communicator import Communicator
from xmc_tf.ranks.stalls.marks import MARKS

if TYPE_CHECKING:
    from xmc_tf.collective.engines.horovod_engine import HorovodEngine
    from xmc_tf.collective.engines.mpi_engine import MpiEngine

# The collective operations of a rank, which all ranks must call in the same order with the same names. ``operations``
# calls them with tensors of types that the engine can send.
Engine: TypeAlias = Union["HorovodEngine", "MpiEngine"]


@cache
def engine() -> Engine:
    """Return this process's engine. All ranks must make the first call."""
    if choose_communicator().uses_mpi4py:  # it reports what is missing
        from xmc_tf.collective.engines.mpi_engine import MpiEngine

        return MpiEngine()
    from xmc_tf.collective.engines.horovod_engine import HorovodEngine

    return HorovodEngine()


def start_engine(communicator: Communicator) -> Engine:
    """Start the engine, and check that it numbers the ranks as the communicator does. All ranks must call it."""
    found = engine()
    if (found.rank, found.size) != (communicator.rank, communicator.size):
        raise InputError(
            "the engine of training steps and the communicator have different ranks",
            expected=f"rank {communicator.rank} of {communicator.size}",
            received=f"rank {found.rank} of {found.size} ({found})",
            fix="start all ranks with one horovodrun or one mpiexec",
        )
    return found


# Types that engines cannot send, and types of the same width that they can.
_SENT_AS = {tf.bfloat16: tf.uint16, tf.bool: tf.uint8}
# Types that are summed in another one, because MPI has no sums of them.
_SUMMED_AS = {tf.bfloat16: tf.float32, tf.float16: tf.float32}


def alltoall(tensor: tf.Tensor, splits: tf.Tensor, name: str) -> tuple[tf.Tensor, tf.Tensor]:
    """Send ``splits[r]`` rows to each rank r. Return the rows received, in rank order, and their number by rank."""
    moved, received = in_order(lambda: engine().alltoall(_sendable(tensor), tf.cast(splits, tf.int32), name))
    moved.set_shape([None, *tensor.shape[1:]])
    return _restored(moved, tensor.dtype), received


def has_32_bit_sizes() -> bool:
    """Return whether the engine counts single numbers, rather than rows, in 32 bits."""
    return engine().has_32_bit_sizes


def allreduce_sum(tensor: tf.Tensor, name: str) -> tf.Tensor:
    (total,) = in_order(lambda: engine().sums([tf.cast(tensor, _SUMMED_AS.get(tensor.dtype, tensor.dtype))], name))
    total.set_shape(tensor.shape)
    return tf.cast(total, tensor.dtype)


def grouped_sum(tensors: Sequence[tf.Tensor], name: str) -> list[tf.Tensor]:
    """Return each tensor's sum over the ranks, bitwise equal on all of them. Tensors of one type share a message."""
    wide = [tf.cast(tensor, _SUMMED_AS.get(tensor.dtype, tensor.dtype)) for tensor in tensors]
    sums: dict[int, tf.Tensor] = {}
    for dtype in sorted({tensor.dtype.name for tensor in wide}):
        at = [index for index, tensor in enumerate(wide) if tensor.dtype.name == dtype]
        found = in_order(partial(engine().sums, [wide[index] for index in at], f"{name}/{dtype}"))
        sums.update(zip(at, found, strict=True))
    for index, tensor in enumerate(tensors):
        sums[index].set_shape(tensor.shape)
    return [tf.cast(sums[index], tensor.dtype) for index, tensor in enumerate(tensors)]


def allgather(tensor: tf.Tensor, name: str) -> tf.Tensor:
    """Return the rows of all ranks in rank order. Ranks may have different numbers of rows."""
    (gathered,) = in_order(lambda: [engine().allgather(_sendable(tensor), name)])
    gathered.set_shape([None, *tensor.shape[1:]])
    return _restored(gathered, tensor.dtype)


def is_first_rank() -> bool:
    return choose_communicator().rank == 0


def broadcast_variables(variables: Sequence[tf.Variable], root: int = 0) -> None:
    """Set the variables on all ranks to their values on rank ``root``. This works only outside of graphs."""
    communicator = choose_communicator()
    for variable in variables:
        # In order, not by name: names may differ, because Keras numbers layers and a rank may have made others before.
        with MARKS.waiting_in(f"xmc_tf/broadcast of {variable.name}"):
            variable.assign(communicator.broadcast_array(variable.numpy(), root))


def _sendable(tensor: tf.Tensor) -> tf.Tensor:
    other = _SENT_AS.get(tensor.dtype)
    if other is None:
        return tensor
    return tf.cast(tensor, other) if tensor.dtype == tf.bool else tf.bitcast(tensor, other)


def _restored(tensor: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    if tensor.dtype == dtype:
        return tensor
    return tf.cast(tensor, dtype) if dtype == tf.bool else tf.bitcast(tensor, dtype)


class GatheredRows(NamedTuple):
    """The rows of all ranks in rank order, and the positions of this rank's rows among them."""

    rows: tf.Tensor
    positions: tf.Tensor


def gather_rows(tensor: tf.Tensor, size: int, rank: int, name: str) -> GatheredRows:
    """Gather the rows of all ranks, any number from each. The result is differentiable. All ranks must call it."""
    own = tf.shape(tensor)[:1]
    if size == 1:
        return GatheredRows(tensor, tf.range(own[0]))
    counts = tf.ensure_shape(operations.allgather(own, f"{name}/counts"), [size])

    @tf.custom_gradient
    def gathered(tensor: tf.Tensor) -> tuple[tf.Tensor, object]:
        def back(upstream: tf.Tensor) -> tf.Tensor:
            # The loss of each rank depends on these rows: they get the sum of what all ranks send back.
            parts, _ = operations.alltoall(tf.convert_to_tensor(upstream), counts, f"{name}/gradient")
            shape = tf.concat([[size], tf.shape(tensor)], axis=0)
            return tf.reduce_sum(tf.reshape(parts, shape), axis=0)

        return operations.allgather(tensor, name), back

    return GatheredRows(gathered(tensor), tf.range(own[0]) + tf.reduce_sum(counts[:rank]))
