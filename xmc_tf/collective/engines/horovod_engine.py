"""The engine over Horovod, which matches the ranks' calls by the names of graph nodes. Nodes may run in any order.

Horovod's operations do not declare side effects. If their inputs were constant, TensorFlow would run them once, before
the graph, and keep the result for all steps. ``not_constant`` prevents it (``check_constant_ids_in_a_graph`` and
``check_each_split_of_a_batch`` of ``tests/collective``).
"""

import re
from collections.abc import Sequence

import horovod.tensorflow as hvd
import tensorflow as tf

from xmc_tf.collective.engines.graph_order import marked, not_constant


class HorovodEngine:
    has_32_bit_sizes = True

    def __init__(self) -> None:
        if not hvd.is_initialized():
            hvd.init()
        self.rank, self.size = hvd.rank(), hvd.size()

    def __str__(self) -> str:
        transport = "MPI" if hvd.mpi_enabled() else "Gloo"
        return f"Horovod over {transport}" + (" and NCCL" if hvd.nccl_built() else "")

    def alltoall(self, tensor: tf.Tensor, splits: tf.Tensor, name: str) -> tuple[tf.Tensor, tf.Tensor]:
        splits = not_constant(splits)
        moved, received = marked(
            name, [tensor, splits], lambda: hvd.alltoall(tensor, splits=splits, name=node_name(name))
        )
        return moved, received

    def sums(self, tensors: Sequence[tf.Tensor], name: str) -> Sequence[tf.Tensor]:
        group = [not_constant(tensor) for tensor in tensors]
        if len(group) == 1:
            return marked(name, group, lambda: [hvd.allreduce(group[0], op=hvd.Sum, name=node_name(name))])
        return marked(name, group, lambda: hvd.grouped_allreduce(group, op=hvd.Sum, name=node_name(name)))

    def allgather(self, tensor: tf.Tensor, name: str) -> tf.Tensor:
        tensor = not_constant(tensor)
        return marked(name, [tensor], lambda: [hvd.allgather(tensor, name=node_name(name))])[0]


def node_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.\-/]", "_", text).lstrip("_-/") or "unnamed"
