"""The choice of this process's engine, which follows that of its communicator."""

import os
from functools import cache
from typing import TYPE_CHECKING, TypeAlias, Union

from xmc_tf.common.errors import InputError
from xmc_tf.ranks.choosing import choose_communicator, how_started
from xmc_tf.ranks.communicator import Communicator

if TYPE_CHECKING:
    from xmc_tf.collective.engines.horovod_engine import HorovodEngine
    from xmc_tf.collective.engines.mpi_engine import MpiEngine

# The collective operations of a rank, which all ranks must call in the same order with the same names. ``operations``
# calls them with tensors of types that the engine can send.
Engine: TypeAlias = Union["HorovodEngine", "MpiEngine"]


@cache
def engine() -> Engine:
    """Return this process's engine, the same object on every call; the first call is collective.

    Processes that MPI has started use mpi4py, and those of ``horovodrun`` over Gloo use Horovod, unless
    ``XMC_TF_COMMUNICATOR`` (horovod, mpi) overrides this. Never both: a step through mpi4py beside Horovod's polling
    thread takes several times as long.
    """
    choose_communicator()  # reports what is missing
    if how_started(os.environ)[0] == "mpi":
        from xmc_tf.collective.engines.mpi_engine import MpiEngine

        return MpiEngine()
    from xmc_tf.collective.engines.horovod_engine import HorovodEngine

    return HorovodEngine()


def start_engine(communicator: Communicator) -> Engine:
    """Start the engine, and check that its ranks are those of the communicator; collective."""
    found = engine()
    if (found.rank, found.size) != (communicator.rank, communicator.size):
        raise InputError(
            "the engine of training steps and the communicator have different ranks",
            expected=f"rank {communicator.rank} of {communicator.size}",
            received=f"rank {found.rank} of {found.size} ({found})",
            fix="start all ranks with one horovodrun or one mpiexec",
        )
    return found
