from collections.abc import Callable
from typing import TypeVar

from xmc_tf.common.errors import InputError
from xmc_tf.ranks.communicator import Communicator

Result = TypeVar("Result")


def run_on_all_ranks(communicator: Communicator, work: Callable[[], Result]) -> Result:
    """Run ``work()`` on each rank, and raise an error of one rank on all. All ranks must call this.

    ``work()`` must not communicate. Errors other than InputError, OSError and MemoryError stay on their rank.
    """
    result: Result
    mine: tuple[str, str] | None = None
    try:
        result = work()
    except InputError as error:
        mine = ("input", str(error))
    except (OSError, MemoryError) as error:
        mine = ("system", f"{type(error).__name__}: {error}")
    outcomes = communicator.allgather((mine, communicator.host))
    failed = [(rank, *outcome, host) for rank, (outcome, host) in enumerate(outcomes) if outcome is not None]
    if not failed:
        return result
    rank, kind, message, host = failed[0]
    where = "" if communicator.size == 1 else f"rank {rank} on {host}: "
    if kind == "input":
        raise InputError(where + message)
    raise OSError(where + message)
