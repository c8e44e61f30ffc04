"""Horovod's collectives in graphs, under names that are the same on all ranks.

Horovod matches the ranks' calls by the names of graph nodes. TensorFlow makes names unique by numbers in the order of
tracing, which is the same on all ranks if they run the same program. The order in which the nodes run does not matter.
Outside of graphs, operations run and are matched in the program's order.
"""

import re
from functools import partial
from types import ModuleType

import tensorflow as tf

from xmc_tf.collective.meters.graph_marks import marked
from xmc_tf.ranks.stalls.marks import MARKS


def horovod() -> ModuleType:
    """Return Horovod's TensorFlow module, initialized."""
    import horovod.tensorflow as hvd

    if not hvd.is_initialized():
        hvd.init()
    return hvd


def node_name(text: str) -> str:
    """Return ``text`` as a valid name of a graph node."""
    return re.sub(r"[^A-Za-z0-9_.\-/]", "_", text).lstrip("_-/") or "unnamed"


def alltoall(tensor: tf.Tensor, splits: tf.Tensor, name: str) -> tuple[tf.Tensor, tf.Tensor]:
    """Send ``splits[r]`` rows to rank r; return the rows received, by rank, and their number from each rank."""
    hvd, splits = horovod(), _not_constant(tf.cast(splits, tf.int32))
    moved, received = marked(name, [tensor, splits], lambda: hvd.alltoall(tensor, splits=splits, name=node_name(name)))
    return tf.ensure_shape(moved, [None, *tensor.shape[1:]]), received


def allreduce_sum(tensor: tf.Tensor, name: str) -> tf.Tensor:
    """Return the sum over the ranks."""
    hvd, tensor = horovod(), _not_constant(tensor)
    (total,) = marked(name, [tensor], lambda: [hvd.allreduce(tensor, op=hvd.Sum, name=node_name(name))])
    return tf.ensure_shape(total, tensor.shape)


def allgather(tensor: tf.Tensor, name: str) -> tf.Tensor:
    """Return the rows of all ranks, in rank order; ranks may have different numbers of rows."""
    hvd, tensor = horovod(), _not_constant(tensor)
    (gathered,) = marked(name, [tensor], lambda: [hvd.allgather(tensor, name=node_name(name))])
    return tf.ensure_shape(gathered, [None, *tensor.shape[1:]])


def grouped_sum(tensors: list[tf.Tensor], name: str) -> list[tf.Tensor]:
    """Return the sums over the ranks, with one message per data type, because Horovod's groups must have one type."""
    hvd = horovod()
    sums: dict[int, tf.Tensor] = {}
    for dtype in sorted({tensor.dtype.name for tensor in tensors}):
        at = [index for index, tensor in enumerate(tensors) if tensor.dtype.name == dtype]
        group, own_name = [_not_constant(tensors[index]) for index in at], f"{name}/{dtype}"
        sums.update(zip(at, marked(own_name, group, partial(_grouped, hvd, group, own_name)), strict=True))
    return [tf.ensure_shape(sums[index], tensor.shape) for index, tensor in enumerate(tensors)]


def broadcast_variables(variables: list[tf.Variable], root: int = 0) -> None:
    """Set variables on all ranks to their values on rank ``root``; only outside of graphs."""
    hvd = horovod()
    for number, variable in enumerate(variables):
        # Horovod does not support bfloat16, but can send its bits as uint16.
        narrow = variable.dtype == tf.bfloat16
        mine = tf.bitcast(variable.read_value(), tf.uint16) if narrow else variable.read_value()
        with MARKS.waiting_in(f"xmc_tf/broadcast of {variable.name}"):
            theirs = hvd.broadcast(mine, root_rank=root, name=node_name(f"xmc_tf/broadcast/{number}"))
        variable.assign(tf.bitcast(theirs, tf.bfloat16) if narrow else theirs)


def _not_constant(tensor: tf.Tensor) -> tf.Tensor:
    """Return the tensor in a form that TensorFlow does not treat as a constant.

    Horovod's operations do not declare their side effects. With constant inputs, TensorFlow would run them during
    tracing to infer a shape, and then drop them, so that ranks would wait for each other forever. See
    ``check_constant_ids_in_a_graph`` of ``tests/collective/world_lookup.py``.
    """
    if tf.executing_eagerly():
        return tensor
    return tf.raw_ops.PlaceholderWithDefault(input=tensor, shape=tensor.shape)


def _grouped(hvd: ModuleType, tensors: list[tf.Tensor], name: str) -> list[tf.Tensor]:
    return hvd.grouped_allreduce(tensors, op=hvd.Sum, name=node_name(name))
