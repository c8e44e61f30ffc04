import hashlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from xmc_tf.collective.tables.table import table_of
from xmc_tf.collective.tables.table_variable import name_of
from xmc_tf.common.errors import InputError
from xmc_tf.ranks.communicator import Communicator


def check_replicas_equal(variables: Sequence[tf.Variable], communicator: Communicator) -> int:
    """Check that replicated variables are bitwise equal on all ranks, and return their number; collective.

    Only digests are sent. Sharded tables, which differ by design, are skipped.
    """
    replicated = [variable for variable in variables if table_of(variable) is None]
    mine = [(name_of(variable), tuple(variable.shape), _digest(variable)) for variable in replicated]
    every = communicator.allgather(mine)
    if any(len(one) != len(every[0]) for one in every):
        raise InputError(
            "ranks have different numbers of replicated variables",
            received=", ".join(f"{len(one)} on rank {rank}" for rank, one in enumerate(every)),
            fix="build the same model on all ranks",
        )
    differing = []
    for number, (name, shape, digest) in enumerate(every[0]):
        # Names may differ: Keras numbers layers, and a rank may have made other models before.
        others = [rank for rank, one in enumerate(every) if one[number][1:] != (shape, digest)]
        if others:
            differing.append(f"{name} {shape}: on ranks {others}")
    if differing:
        raise InputError(
            f"{len(differing)} of {len(replicated)} replicated variables differ from rank 0's",
            received="\n            ".join(differing[:10]),
            fix="create the model inside strategy.scope(), and update it only with strategy.optimizer(...)",
        )
    return len(replicated)


def _digest(variable: tf.Variable) -> str:
    """Return a digest of the bytes, for which -0.0 and 0.0 differ and a NaN equals itself."""
    values = np.ascontiguousarray(variable.numpy())
    return hashlib.blake2b(values.view(np.uint8).reshape(-1).data, digest_size=16).hexdigest()
