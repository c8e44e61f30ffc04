"""Horovod's collectives inside a graph: the few that are used, under names that are the same on all ranks.

Horovod matches the ranks' calls by the name of the graph's node. TensorFlow makes a name unique by counting up in the
order of tracing, which is the same on all ranks as long as they run the same program; the order in which the nodes
then run does not matter. Outside of a ``tf.function`` operations run, and are matched, in the program's order.
"""

import re
from types import ModuleType

import tensorflow as tf


def horovod() -> ModuleType:
    """Horovod's binding to TensorFlow, started."""
    import horovod.tensorflow as hvd

    if not hvd.is_initialized():
        hvd.init()
    return hvd


def node_name(text: str) -> str:
    """``text`` as the name of a node."""
    return re.sub(r"[^A-Za-z0-9_.\-/]", "_", text).lstrip("_-/") or "unnamed"


def alltoall(tensor: tf.Tensor, splits: tf.Tensor, name: str) -> tuple[tf.Tensor, tf.Tensor]:
    """Sends ``splits[r]`` rows to rank r; gives what came, in the order of the ranks, and how much from each."""
    moved, received = horovod().alltoall(tensor, splits=tf.cast(splits, tf.int32), name=node_name(name))
    return tf.ensure_shape(moved, [None, *tensor.shape[1:]]), received


def allreduce_sum(tensor: tf.Tensor, name: str) -> tf.Tensor:
    """The sum over the ranks."""
    hvd = horovod()
    return tf.ensure_shape(hvd.allreduce(tensor, op=hvd.Sum, name=node_name(name)), tensor.shape)


def grouped_sum(tensors: list[tf.Tensor], name: str) -> list[tf.Tensor]:
    """The sums over the ranks, in one message for each data type (Horovod takes no mixed groups)."""
    hvd = horovod()
    sums: dict[int, tf.Tensor] = {}
    for dtype in sorted({tensor.dtype.name for tensor in tensors}):
        at = [index for index, tensor in enumerate(tensors) if tensor.dtype.name == dtype]
        reduced = hvd.grouped_allreduce([tensors[i] for i in at], op=hvd.Sum, name=node_name(f"{name}/{dtype}"))
        sums.update(zip(at, reduced, strict=True))
    return [tf.ensure_shape(sums[index], tensor.shape) for index, tensor in enumerate(tensors)]


def broadcast_variables(variables: list[tf.Variable], root: int = 0) -> None:
    """Gives all ranks the values that ``root`` has; outside of graphs only."""
    hvd = horovod()
    for number, variable in enumerate(variables):
        name = node_name(f"xmc_tf/broadcast/{number}")
        if variable.dtype == tf.bfloat16:
            whole = hvd.broadcast(tf.bitcast(variable.read_value(), tf.uint16), root_rank=root, name=name)
            variable.assign(tf.bitcast(whole, tf.bfloat16))
        else:
            variable.assign(hvd.broadcast(variable.read_value(), root_rank=root, name=name))
